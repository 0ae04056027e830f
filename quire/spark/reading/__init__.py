"""Executor side of a read: entries of a range as rows."""
