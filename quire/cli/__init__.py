"""The one door in: `quire ...`."""
