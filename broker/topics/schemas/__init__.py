"""Schemas of topics: what is kept of them, in which form, and whether a new one goes with the others."""
