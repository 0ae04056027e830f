"""Spans of messages that a broker stores and delivers, in the traces that their producers began."""
