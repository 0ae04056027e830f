"""Rebuilding the indexes of a stopped bookie from its entry logs and journals."""
