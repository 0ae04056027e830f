"""Rows of `scripts/bench spark`."""
