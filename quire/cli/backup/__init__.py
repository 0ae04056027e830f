"""`quire admin backup` and `restore`: a topic, or a cluster's metadata, in one file."""
