"""Offloaded ledgers: a storage that several brokers share, the job that offloads, and their history."""
