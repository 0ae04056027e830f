"""Limbo: a bookie that may have lost data answers "unknown", never "no such entry", until its data is back."""
