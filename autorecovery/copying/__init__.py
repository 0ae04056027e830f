"""The workers: read a ledger's copies, and make those that are missing."""
