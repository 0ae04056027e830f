"""Replication workers: they read a ledger's copies, and write the missing ones."""
