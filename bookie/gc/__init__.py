"""Garbage collection of a bookie: when it runs, what it may drop beside deleted ledgers, and its metrics."""
