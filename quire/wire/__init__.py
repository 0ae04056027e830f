"""Formats of bytes on sockets and inside entries. Everything here is pure."""
