"""Snapshots of the transactions of topics, in topics of their namespaces where Pulsar keeps them."""
