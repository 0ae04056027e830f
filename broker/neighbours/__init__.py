"""Limits of one role, and of one address, at a broker: connections, requests, bytes, topics."""
