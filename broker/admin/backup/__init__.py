"""Calls of `quire admin backup` and `restore`: raw entries, places of subscriptions, nodes of the metadata."""
