"""Doors to the world: clock, disk, key_value, network, offload, rng."""
