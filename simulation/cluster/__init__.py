"""Histories of whole clusters: hosts, clients, faults, checkers."""
