"""Bytes on sockets and inside entries; all of it pure."""
