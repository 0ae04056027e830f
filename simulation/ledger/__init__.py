"""Histories of bookies and ledger clients: hosts, faults, checkers."""
