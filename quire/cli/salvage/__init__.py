"""`quire salvage`: messages of deleted ledgers, from the entry logs of a stopped bookie."""
