"""Producers for topics with deduplication, whose callers choose the sequence ids."""
