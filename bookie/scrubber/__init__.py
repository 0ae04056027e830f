"""Scrubber: reads cold data to find damage before a reader does, and heals it from the other bookies."""
