"""Commands of the shell on the folders of a stopped bookie."""
