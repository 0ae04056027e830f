"""Entry storage of a bookie: write cache, entry logs, RocksDB indexes, read cache."""
