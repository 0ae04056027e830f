"""The real world: files, RocksDB, sockets, threads. Only the modules `real*` use them."""

from __future__ import annotations

import random
import time

from quire.world.doors import World
from quire.world.faults import Faults
from quire.world.real_disk import RealDisk
from quire.world.real_key_value import RealKeyValueMaker
from quire.world.real_network import RealNetwork
from quire.world.real_offload import RealOffload


def real_world(seed: int | None = None) -> World:
    """Return the real world. `seed` fixes `World.rng` only; None takes a seed from the system.

    A process that creates ledgers beside others needs None: it recognises its own ledgers by numbers drawn from `rng`.
    """
    faults = Faults()
    return World(
        clock=RealClock(),
        disk=RealDisk(),
        key_value=RealKeyValueMaker(),
        network=RealNetwork(),
        offload=RealOffload(faults),
        rng=random.Random(seed),
        faults=faults,
    )


class RealClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
