"""Quire: a topic broker on a bookie tier."""
