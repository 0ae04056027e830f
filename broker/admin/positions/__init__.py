"""Positions of subscriptions and places in a topic, for operators: reset, skip, expire, look, terminate, truncate."""
