"""Reads of a ledger: order of the copies, speculative requests, races between bookies, tailing."""
