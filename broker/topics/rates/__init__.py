"""Rates to which publishers, subscriptions and subscribing consumers of a topic are held."""
