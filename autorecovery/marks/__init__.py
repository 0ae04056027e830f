"""Marks of ledgers that lack copies, as stored in the metadata."""
