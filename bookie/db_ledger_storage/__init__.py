"""Where a bookie keeps entries: write cache, entry log, RocksDB indexes, read cache."""
