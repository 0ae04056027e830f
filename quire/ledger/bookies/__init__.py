"""Connections to bookies, their observed health, and the registered bookies."""
