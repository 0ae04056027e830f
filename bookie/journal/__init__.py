"""The write-ahead log of a bookie."""
