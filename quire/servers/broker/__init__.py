"""`quire broker` as a process."""
