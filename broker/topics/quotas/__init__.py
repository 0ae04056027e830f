"""Quotas of the backlog of a topic."""
