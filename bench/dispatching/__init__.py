"""Delivery by one standalone server: the rows of `scripts/bench dispatch`."""
