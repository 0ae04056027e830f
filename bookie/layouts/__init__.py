"""Older layouts of a bookie's directories, and their upgrade."""
