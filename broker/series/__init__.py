"""Metrics of topics, subscriptions, producers and consumers: what is recorded of them, and how it is exposed."""
