"""Measurements of a running server, and scrapes of them."""
