"""Commands of the shell on auto recovery, and those that move copies."""
