"""Gate: lets so many tasks in at a time, for places that thousands of tasks pass, and where there is mostly room."""

from __future__ import annotations

import trio


class Gate:
    """As trio.CapacityLimiter, in `async with` only: first come, first served. To enter while there is room costs no
    turn of the event loop."""

    __slots__ = ("_room", "_waiting")

    def __init__(self, tasks_max: int) -> None:
        assert tasks_max > 0, f"a gate for {tasks_max} tasks"
        self._room = tasks_max
        self._waiting = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._room:
            self._room -= 1
        else:
            await self._waiting.park()  # who leaves hands the place over

    async def __aexit__(self, *_: object) -> None:
        if self._waiting:
            self._waiting.unpark()
        else:
            self._room += 1
