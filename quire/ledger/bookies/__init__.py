"""Connections to bookies, what is known of their health, and which of them there are."""
