"""`quire bookie` as a process."""
