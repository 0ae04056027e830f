"""Command line of Quire: `quire ...`."""
