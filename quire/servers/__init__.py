"""Processes: what a server is made of, its configuration and its web port."""
