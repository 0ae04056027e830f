"""One client of a bookie: its requests in both versions of the protocol, and the reads that wait."""
