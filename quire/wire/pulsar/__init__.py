"""Pulsar binary protocol: frames, commands, checksums, names."""
