"""Job that offloads closed ledgers, in the steps of `quire.spark.pipelines.offloading`, on a machine of its own."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

import trio

from managed_ledger.errors import ManagedLedgerError, ObjectError, OffloadRefusedError
from managed_ledger.ledger_list import LedgerInfo, LedgerList
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import closed_ledgers, completed, prepared, state_of
from quire.ledger.position import Position
from quire.world.doors import Disk, World
from simulation.machines.host import Host
from simulation.tiers.storage import DRIVER, FOLDER, Mount, Point, decode, encode, parse, path_of, remove

T = TypeVar("T")


class OwnerAwayError(Exception):
    """The owner of the log did not answer: it may have done it all the same."""


class Owner(Protocol):
    """Broker that has the log."""

    async def call(self, work: Callable[[ManagedLedger], Awaitable[T]]) -> T:
        """Return what the broker answers. Raises OwnerAwayError, ManagedLedgerError."""


class OffloadJob:
    """The job; counts the ledgers that it has completed."""

    def __init__(self, host: Host, owner: Owner, mount: Mount, point: Point) -> None:
        self.completed = 0
        self._host = host
        self._owner = owner
        self._mount = mount
        self._point = point

    async def serve(self, world: World, stop: trio.Event) -> None:
        """Run it again and again until it is stopped."""
        rng = world.rng
        while not stop.is_set():
            await trio.sleep(rng.uniform(0.05, 0.6))
            try:
                ledgers = await self._ledgers()
                if self._mount.is_locked or not self._mount.is_up:
                    continue
                self._mount.lock(self._host)
                try:
                    for info in ledgers:
                        await self._offload(rng, world, info)
                    await self._tidy(rng)
                finally:
                    self._mount.unlock()
            except (OwnerAwayError, ManagedLedgerError):
                pass

    async def _ledgers(self) -> list[LedgerInfo]:
        found: list[LedgerInfo] = []

        def look(value: LedgerList) -> LedgerList:
            found[:] = closed_ledgers(value)
            return replace(value)

        await self._owner.call(lambda log: log.update_list(look))
        return found

    async def _offload(self, rng: random.Random, world: World, info: LedgerInfo) -> None:
        state = state_of(info)
        if state.complete:
            return
        if state.uid and await self._is_whole(rng, info, state.uid):
            # The job that gave the object its name may have been killed before the name was durable.
            await self._mount.call(rng, lambda disk: disk.sync_dir(FOLDER))
            await self._complete(rng, world, info, UUID(state.uid))
        else:
            await self._write(rng, world, info, instead=state.uid)

    async def _is_whole(self, rng: random.Random, info: LedgerInfo, uid: str, suffix: str = "") -> bool:
        path = path_of(info.ledger_id, uid) + suffix
        try:
            data = await self._mount.call(rng, lambda disk: disk.read(path) if disk.exists(path) else None)
            return data is not None and len(decode(uid, data)) == info.entries
        except ObjectError:
            return False

    async def _write(self, rng: random.Random, world: World, info: LedgerInfo, *, instead: str) -> None:
        uid, now_ms = UUID(int=rng.getrandbits(128)), world.clock.wall_ms()
        change = partial(prepared, ledger_id=info.ledger_id, uid=uid, instead=instead, driver=DRIVER, now_ms=now_ms)
        try:
            await self._owner.call(lambda log: log.update_list(change))
        except OffloadRefusedError:
            return
        await self._point("prepared")
        path = path_of(info.ledger_id, str(uid))
        entries = await self._entries(info)
        if entries is None:
            return
        data = encode(str(uid), entries)
        half = rng.randrange(len(data))
        await self._mount.call(rng, lambda disk: _write(disk, f"{path}.tmp", data[:half], 0))
        await self._point("half")
        await self._mount.call(rng, lambda disk: _write(disk, f"{path}.tmp", data[half:], half))
        if not await self._is_whole(rng, info, str(uid), ".tmp"):
            return
        await self._point("written")
        await self._mount.call(rng, lambda disk: disk.rename(f"{path}.tmp", path))
        await self._point("renamed")
        await self._mount.call(rng, lambda disk: disk.sync_dir(FOLDER))
        await self._point("published")
        await self._complete(rng, world, info, uid)

    async def _entries(self, info: LedgerInfo) -> list[bytes] | None:
        """Return the entries of a ledger; None: it was trimmed."""
        found: list[bytes] = []
        while len(found) < info.entries:
            position = Position(info.ledger_id, len(found))
            run = await self._owner.call(
                partial(ManagedLedger.read, position=position, count_max=100, size_max=1 << 16)
            )
            if run.ledger_id != info.ledger_id or not run.payloads:
                return None
            found += [bytes(payload) for payload in run.payloads]
        return found

    async def _complete(self, rng: random.Random, world: World, info: LedgerInfo, uid: UUID) -> None:
        change = partial(completed, ledger_id=info.ledger_id, uid=uid, now_ms=world.clock.wall_ms())
        try:
            await self._owner.call(lambda log: log.update_list(change))
        except OffloadRefusedError:
            now = next((each for each in await self._ledgers() if each.ledger_id == info.ledger_id), None)
            if now is None or state_of(now).uid != str(uid):
                await self._mount.call(rng, partial(_remove, path=path_of(info.ledger_id, str(uid))))
            return
        self.completed += 1
        await self._point("completed")

    async def _tidy(self, rng: random.Random) -> None:
        names = await self._mount.call(rng, lambda disk: disk.names(FOLDER))
        ledgers = {info.ledger_id: state_of(info) for info in await self._ledgers()}
        for name in names:
            ledger_id, uid, is_temporary = parse(name)
            state = ledgers.get(ledger_id)
            if is_temporary if state is None else state.complete and (is_temporary or uid != state.uid):
                await self._mount.call(rng, partial(_remove, path=f"{FOLDER}/{name}"))
                await self._point("tidied")


def _write(disk: Disk, path: str, data: bytes, offset: int) -> None:
    file = disk.open(path, create=True)
    file.truncate(offset)
    file.pwrite(data, offset)
    file.sync()
    file.close()


def _remove(disk: Disk, path: str) -> None:
    remove(disk, path)
    disk.sync_dir(FOLDER)
