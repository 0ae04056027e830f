"""Rows of `scripts/bench bookie`."""
