"""Pulsar's binary protocol: frames, commands, checksums, names."""
