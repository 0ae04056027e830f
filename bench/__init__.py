"""What `scripts/bench` runs: load generators, the peers beside us, tables and pictures. Not shipped."""
