"""`quire autorecovery` as a process."""
