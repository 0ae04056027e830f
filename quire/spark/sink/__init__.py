"""Writes: rows as messages."""
