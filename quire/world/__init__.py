"""Doors to the world: clock, disk, key-value map, network, offload, random numbers.

`doors` has the contracts, `real` the real implementations (import it only where a server is composed), and `outbox` the
send buffer of every connection.
"""
