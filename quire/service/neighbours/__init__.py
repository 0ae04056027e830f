"""Bounds on what one address or role may take from a server, so that others are served beside it."""
