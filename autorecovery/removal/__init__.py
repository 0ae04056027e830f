"""Removal of bookies: their ledgers are copied to other bookies, and their cookies deleted."""
