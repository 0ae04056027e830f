"""Commands of the shell on the metadata of a cluster and on its bookies."""
