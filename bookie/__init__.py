"""The storage node: journal, write cache, entry log, index."""
