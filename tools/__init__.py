"""Tools that start, demonstrate or disturb clusters: local cluster, demo, chaos."""
