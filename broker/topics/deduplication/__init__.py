"""Deduplication: a message that a producer sends twice is stored once."""
