"""Doors to the world: clock, disk, key_value, network, offload, rng.

`doors` has the contracts, `real` the real makers (import it only where a server is put together), `outbox` what every
connection writes through.
"""

from quire.world.doors import (
    Batch,
    Buffer,
    Clock,
    Disk,
    DiskLock,
    File,
    KeyValue,
    KeyValueMaker,
    Lane,
    Listener,
    Network,
    Offload,
    Stream,
    World,
)
from quire.world.outbox import Outbox

__all__ = [
    "Batch",
    "Buffer",
    "Clock",
    "Disk",
    "DiskLock",
    "File",
    "KeyValue",
    "KeyValueMaker",
    "Lane",
    "Listener",
    "Network",
    "Offload",
    "Outbox",
    "Stream",
    "World",
]
