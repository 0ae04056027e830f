"""Doors to the world: clock, disk, key-value map, network, offload, random numbers.

`doors` has the contracts, `real` the real implementations (import it only where a server is composed), and `outbox` the
send buffer of every connection.
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
