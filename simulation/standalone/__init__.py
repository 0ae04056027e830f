"""Histories of one server, and of one bookie: clients, fencing, ids that are used again."""
