"""Compaction of entry logs: choosing them, copying what they still hold, and deleting them."""
