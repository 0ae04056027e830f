"""Benchmarks of `scripts/bench`: load generators, servers to compare with, tables and pictures. Not shipped."""
