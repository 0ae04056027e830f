"""The chaos run, `scripts/chaos`: official clients on a cluster of processes, any of which may be killed or hang at any
moment, and a checker of what every client saw."""
