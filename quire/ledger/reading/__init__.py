"""Reads of a ledger: order of the copies, second tries, races, the tail."""
