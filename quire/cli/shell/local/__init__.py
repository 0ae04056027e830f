"""Commands of the shell that read the files of a bookie, which may be running."""
