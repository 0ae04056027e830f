"""The chaos run: official clients on a cluster of processes, of which any may be killed or hang at any moment, and a checker of
what every one of them saw. `scripts/chaos`."""
