"""Ownership of topics: bundles of a namespace, leases on them, lookups, and balance between brokers."""
