"""Tiered storage in memory, with the interface of `managed_ledger.tiers.Objects`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

import trio

from managed_ledger.errors import ObjectError
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import completed, prepared
from managed_ledger.tiers import ObjectPlace
from tests.unit.managed_ledger.fake_ledgers import FakeLedgers

DRIVER = "memory"


class FakeObjects:
    """Shared by every broker of a test."""

    driver = DRIVER

    def __init__(self) -> None:
        self.are_first = True
        self.deletion_lag_ms = -1
        self.stored: dict[str, list[bytes]] = {}
        self.damaged: set[str] = set()
        self.reads: list[tuple[int, int]] = []
        self.verified: list[int] = []
        self.are_deleted = True
        self.is_away = False
        self.deletions: list[list[str]] = []
        self.point: Callable[[], Awaitable[None]] | None = None

    async def open(self, place: ObjectPlace) -> FakeObject:
        await trio.lowlevel.checkpoint()
        return FakeObject(self, place, self.entries(place))

    async def verify(self, place: ObjectPlace) -> None:
        if self.point is not None:
            await self.point()
        self.verified.append(place.ledger_id)
        entries = self.entries(place)
        if len(entries) != place.entries or sum(map(len, entries)) != place.size:
            raise ObjectError(f"object {place.uid} is not whole")

    async def delete(self, places: Sequence[ObjectPlace]) -> None:
        self.deletions.append([place.uid for place in places])
        if self.is_away:
            raise ObjectError("the storage is away")
        for place in places:
            if self.point is not None:
                await self.point()
            self.stored.pop(place.uid, None)
            if self.point is not None:
                await self.point()

    def entries(self, place: ObjectPlace) -> list[bytes]:
        if place.uid in self.damaged or place.uid not in self.stored:
            raise ObjectError(f"object {place.uid} is damaged or missing")
        return self.stored[place.uid]


class FakeObject:
    def __init__(self, objects: FakeObjects, place: ObjectPlace, entries: list[bytes]) -> None:
        self._objects = objects
        self._place = place
        self._entries = entries

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        await trio.lowlevel.checkpoint()
        self._objects.entries(self._place)
        self._objects.reads.append((self._place.ledger_id, first))
        return [memoryview(entry) for entry in self._entries[first : last + 1]]


def uid_of(ledger_id: int) -> UUID:
    return UUID(int=ledger_id + 1)


async def offload(log: ManagedLedger, ledgers: FakeLedgers, objects: FakeObjects, *ledger_ids: int) -> None:
    """Do as the pipeline: all steps for these ledgers."""
    for ledger_id in ledger_ids:
        uid = uid_of(ledger_id)
        await log.update_list(
            partial(prepared, ledger_id=ledger_id, uid=uid, instead="", driver=DRIVER, now_ms=log_ms(log))
        )
        objects.stored[str(uid)] = [bytes(entry) for entry in ledgers.stored[ledger_id].entries]
        await log.update_list(partial(completed, ledger_id=ledger_id, uid=uid, now_ms=log_ms(log)))


def log_ms(log: ManagedLedger) -> int:
    """Return the time of the broker's clock."""
    return log._services.world.clock.wall_ms()
