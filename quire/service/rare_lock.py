"""RareLock: a lock of an object of which there are thousands, and which is nearly always free."""

from __future__ import annotations

import trio


class RareLock:
    """As trio.Lock, in `async with` only: first come, first served, and the task that has it must not take it again. To take it
    while it is free costs no turn of the event loop, and it has a place for waiting tasks only while there are some."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: bool | trio.lowlevel.ParkingLot = False

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        held = self._held
        if held is False:
            self._held = True
            return
        if held is True:
            held = self._held = trio.lowlevel.ParkingLot()
        await held.park()

    async def __aexit__(self, *_: object) -> None:
        held = self._held
        if held is True or not held:
            self._held = False
        else:
            held.unpark()  # the first that waits has it now
