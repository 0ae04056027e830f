"""Restores the write quorum after bookies are lost; comes with the cluster."""
