"""Permissions of connections: the check of each command, and the end of what has lost its permission."""
