"""Commands of the shell that ask a running bookie over its HTTP port."""
