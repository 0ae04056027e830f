"""RareLock: a lock for objects of which there are thousands, and which is nearly always free."""

from __future__ import annotations

import trio


class RareLock:
    """Lock like trio.Lock, for `async with` only: first come, first served, not reentrant.

    Taking a free lock costs no turn of the event loop, and it has a queue of waiting tasks only while there are
    some."""

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
            held.unpark()  # the first waiting task has it now
