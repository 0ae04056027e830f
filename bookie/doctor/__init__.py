"""Bookie part of `quire doctor`: examines a bookie's folders."""
