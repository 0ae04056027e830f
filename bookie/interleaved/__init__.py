"""Index files of BookKeeper's InterleavedLedgerStorage and SortedLedgerStorage: read, written, and converted."""
