"""Folder of objects on a machine of its own, which brokers and the job share, as a mount; and the storage of a broker
on it.

An operation happens wholly or not at all, at an instant between its call and its answer, so a kill of the caller leaves
it done or not. What was not synced is lost when the machine of the folder loses power. Objects have checksums, as files
of `quire.offload` have; pyarrow would tie a history to the real clock and disk.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final, TypeVar
from uuid import UUID

import trio
from crc32c import crc32c

from managed_ledger.errors import ObjectError
from managed_ledger.tiers import ObjectPlace
from quire.world.doors import Disk, World
from simulation.machines.host import Host

T = TypeVar("T")
Point = Callable[[str], Awaitable[None]]
"""Called with the name of a step; kills the caller at times."""

FOLDER: Final = "/objects"
DRIVER: Final = "simulated"
_HEAD: Final = Struct(">16sI")
_ENTRY: Final = Struct(">II")
_NAME: Final = re.compile(r"ledger-([0-9]+)-([0-9a-f-]{36})(\.tmp)?")


def encode(uid: str, entries: Sequence[bytes]) -> bytes:
    """Return the bytes of an object."""
    head = _HEAD.pack(UUID(uid).bytes, len(entries))
    parts = [_ENTRY.pack(len(entry), crc32c(entry)) + entry for entry in entries]
    return b"".join([head, crc32c(head).to_bytes(4, "big"), *parts])


def decode(uid: str, data: bytes) -> list[bytes]:
    """Return the entries of an object. Raises ObjectError: it is damaged, or another one."""
    at = _HEAD.size + 4
    try:
        found, count = _HEAD.unpack_from(data)
        if crc32c(data[: _HEAD.size]).to_bytes(4, "big") != data[_HEAD.size : at] or found != UUID(uid).bytes:
            raise ObjectError(f"object {uid} is damaged")
        entries = []
        for _ in range(count):
            size, checksum = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            entries.append(data[at : at + size])
            at += size
            if len(entries[-1]) != size or crc32c(entries[-1]) != checksum:
                raise ObjectError(f"object {uid} is damaged at entry {len(entries) - 1}")
    except struct.error:
        raise ObjectError(f"object {uid} is cut") from None
    return entries


def path_of(ledger_id: int, uid: str) -> str:
    return f"{FOLDER}/ledger-{ledger_id}-{uid}"


def parse(name: str) -> tuple[int, str, bool]:
    """Return ledger, uid, and whether the object is being written, of a name in the folder."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    return int(match[1]), match[2], match[3] is not None


class Mount:
    """The folder."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._disk: Disk | None = None
        self._incarnation = 0
        self._holder: tuple[Host, int] | None = None

    async def serve(self, world: World, stop: trio.Event) -> None:
        """Run the machine."""
        world.disk.make_dirs(FOLDER)
        self._disk, self._incarnation = world.disk, self.host.incarnation
        await stop.wait()

    @property
    def is_up(self) -> bool:
        return self.host.running and self._incarnation == self.host.incarnation

    def now(self, job: Callable[[Disk], T]) -> T:
        """Run a job at once. Raises ObjectError."""
        if not self.is_up or self._disk is None:
            raise ObjectError("the folder is away")
        try:
            return job(self._disk)
        except OSError as error:
            raise ObjectError(str(error)) from error

    async def call(self, rng: random.Random, job: Callable[[Disk], T]) -> T:
        """Run an operation from another machine. Raises ObjectError."""
        await trio.sleep(rng.uniform(0, 0.004))
        found = self.now(job)
        await trio.sleep(rng.uniform(0, 0.004))
        return found

    def read(self, path: str) -> bytes:
        """Return the bytes of an object. Raises ObjectError."""
        return self.now(lambda disk: disk.read(path))

    def names(self) -> list[tuple[int, str, bool]]:
        """Return what is in the folder. Raises ObjectError."""
        return [parse(name) for name in self.now(lambda disk: disk.names(FOLDER))]

    # The lock of the job: it ends with its process.

    @property
    def is_locked(self) -> bool:
        return self._holder is not None and self._holder[0].running and self._holder[0].incarnation == self._holder[1]

    def lock(self, host: Host) -> None:
        self._holder = (host, host.incarnation)

    def unlock(self) -> None:
        self._holder = None


class SimObjects:
    """Storage of one broker; see `managed_ledger.tiers.Objects`."""

    driver: Final = DRIVER
    are_deleted: Final = True

    def __init__(
        self, mount: Mount, rng: random.Random, point: Point, verified: set[str], *, are_first: bool, lag_ms: int
    ) -> None:
        """`verified`: gets the uids of objects whose ledgers may leave the bookies from now on."""
        self.are_first = are_first
        self.deletion_lag_ms = lag_ms
        self._mount = mount
        self._rng = rng
        self._point = point
        self._verified = verified

    async def open(self, place: ObjectPlace) -> SimObject:
        await self.entries(place)
        return SimObject(self, place)

    async def verify(self, place: ObjectPlace) -> None:
        self._verified.add(place.uid)
        entries = await self.entries(place)
        if len(entries) != place.entries or sum(map(len, entries)) != place.size:
            raise ObjectError(f"object {place.uid} is not whole")
        await self._point("verified")

    async def entries(self, place: ObjectPlace) -> list[bytes]:
        path = path_of(place.ledger_id, place.uid)
        return decode(place.uid, await self._mount.call(self._rng, lambda disk: disk.read(path)))

    async def delete(self, places: Sequence[ObjectPlace]) -> None:
        if self._mount.is_locked:
            raise ObjectError("the topic is being offloaded")
        await self._point("to be deleted")
        for place in places:
            for name in await self._mount.call(self._rng, lambda disk: disk.names(FOLDER)):
                if parse(name)[0] == place.ledger_id:
                    await self._mount.call(self._rng, partial(remove, path=f"{FOLDER}/{name}"))
                    await self._point("deleted")
        await self._mount.call(self._rng, lambda disk: disk.sync_dir(FOLDER))
        await self._point("deleted durably")


def remove(disk: Disk, path: str) -> None:
    """Remove an object, if it exists; not made durable."""
    if disk.exists(path):
        disk.unlink(path)


class SimObject:
    """Reader of one object."""

    def __init__(self, objects: SimObjects, place: ObjectPlace) -> None:
        self._objects = objects
        self._place = place

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        entries = await self._objects.entries(self._place)
        return [memoryview(entry) for entry in entries[first : last + 1]]
