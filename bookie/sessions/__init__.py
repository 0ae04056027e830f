"""Sessions: one client's requests in both versions of the protocol, and the reads that wait."""
