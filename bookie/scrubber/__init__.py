"""Scrubber: reads what lies cold on the disk, verifies it, and has damaged copies replaced from other bookies."""
