"""Metadata stores of one process: in memory, and in RocksDB."""
