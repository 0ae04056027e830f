"""Trials with damaged disks: synced data are found, or their loss is reported, and never called absent.

A host that was killed is copied twice: one copy is started as it is, the other with one thing wrong in what was synced
(a flipped bit, a sector of zeros or of something else, a cut, a missing file, a map whose log is damaged). What the
first one has, the second one has too, or says that it cannot be read, or refuses to start. The history goes on with
neither.

NoSilentLoss: checked by `trial`. Bytes behind the synced part according to the journal's seal are not damaged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.errors import BookieError, NoEntryError, NoLedgerError, StorageDamagedError
from bookie.journal.format import file_name
from bookie.journal.seal import SEAL_SUFFIX, decode_seal
from quire.metadata.errors import MetadataError
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import MetadataStore, Op
from quire.servers.errors import DataDirectoryError
from quire.world.doors import World
from simulation.common.checkers import ViolationError
from simulation.machines.disk_image import SECTOR, DiskImage
from simulation.machines.host import Host
from simulation.machines.world import Universe

_TEMPORARY = (".tmp", "/quire.lock", "/LOCK")
_SEAL = re.compile(r"/lastMark(?:\.([0-9]+))?" + re.escape(SEAL_SUFFIX) + "$")
"""Seal of a journal; of the journal with this number, if there are several."""
UNREADABLE = object()
"""Value of an unreadable entry."""


@dataclass
class Contents:
    """Contents of a bookie: entries by (ledger, entry), fenced ledgers, rows of metadata by path."""

    entries: dict[tuple[int, int], object] = field(default_factory=dict)
    fenced: dict[int, bool] = field(default_factory=dict)
    nodes: dict[str, bytes] = field(default_factory=dict)


class SeenStore(MemoryStore):
    """Session of a copy of a host, which leaves no trace in the cluster of the host: its writes have no effect."""

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        return [op.path for op in ops]

    async def put(self, path: str, value: bytes, version: int) -> int:
        return 0


Opening = Callable[[World, "Contents | None"], Awaitable[Contents]]
"""Start on a world and return its contents: everything, or the given ones."""


async def bookie_contents(
    world: World, config: BookieConfig, metadata: MetadataStore, wanted: Contents | None
) -> Contents:
    """Start the bookie and read everything, or the wanted contents. Raises the error that prevents the start."""
    found = Contents()
    async with open_bookie(world, config, metadata) as bookie:
        storage = bookie.storage
        if wanted is None:
            for ledger_id in await storage.local_ledgers():
                found.fenced[ledger_id] = storage.is_fenced(ledger_id)
                if ledger_id in storage.ledgers():
                    for entry_id in list(storage.reader.entry_ids(ledger_id)):
                        with suppress(StorageDamagedError):  # earlier damage of another kind
                            found.entries[ledger_id, entry_id] = bytes(storage.reader.read_entry(ledger_id, entry_id))
            return found
        for ledger_id in wanted.fenced:
            found.fenced[ledger_id] = storage.is_fenced(ledger_id)
        for ledger_id, entry_id in wanted.entries:
            try:
                found.entries[ledger_id, entry_id] = bytes(storage.reader.read_entry(ledger_id, entry_id))
            except (NoEntryError, NoLedgerError):
                pass
            except (BookieError, OSError):
                found.entries[ledger_id, entry_id] = UNREADABLE
    return found


async def trial(universe: Universe, host: Host, opening: Opening, rng: random.Random) -> str:
    """Damage a copy of `host`, which is down, and start it; return the damage and the result. Raises ViolationError."""
    whole = await _start(universe, host, opening, None, None)
    assert isinstance(whole, Contents), f"an undamaged copy of {host.name} does not start: {whole}"
    done: list[str] = []

    def harm(twin: Host) -> None:
        done.append(_harm(twin, rng))

    damaged = await _start(universe, host, opening, harm, whole)
    if isinstance(damaged, BaseException):
        return f"{done[0]}: refused"
    _compare(done[0], whole, damaged)
    return f"{done[0]}: served"


def _compare(done: str, whole: Contents, damaged: Contents) -> None:
    absent = [place for place in whole.entries if place not in damaged.entries]
    if absent:
        raise ViolationError("NoSilentLoss", f"{done}: {len(absent)} entries are called absent, {absent[:3]}")
    unfenced = [ledger for ledger, fenced in whole.fenced.items() if fenced and not damaged.fenced.get(ledger)]
    if unfenced:
        raise ViolationError("NoSilentLoss", f"{done}: fences are forgotten, of ledgers {unfenced[:3]}")
    gone = [path for path, value in whole.nodes.items() if damaged.nodes.get(path) != value]
    if gone:
        raise ViolationError("NoSilentLoss", f"{done}: {len(gone)} metadata nodes are gone or wrong, {gone[:3]}")


async def _start(
    universe: Universe, host: Host, opening: Opening, harm: Callable[[Host], None] | None, wanted: Contents | None
) -> Contents | BaseException:
    """Return the contents of a copy of the host, or the error that prevented its start."""
    twin = universe.host(f"{host.name}-copy")
    twin.disk = host.disk.fork()
    twin.maps = host.maps.fork()
    if harm is not None:
        harm(twin)
    results: list[Contents | BaseException] = []

    async def main(world: World, stop: trio.Event) -> None:
        try:
            results.append(await opening(world, wanted))
        except* (BookieError, DataDirectoryError, MetadataError, OSError) as error:
            results.append(error)

    twin.start(main)
    await twin.wait_down()
    return results[0]


def _harm(host: Host, rng: random.Random) -> str:
    """Damage one thing that was synced, and describe it."""
    disk = host.disk
    if rng.random() < 0.3:
        path = host.maps.damage(rng)
        if path is not None:
            return f"{path}: damaged log"
    paths = [path for path in disk.paths() if not path.endswith(_TEMPORARY)]
    limits = _synced_sizes(disk, paths)
    likely = [path for path in paths if path.endswith((".txn", SEAL_SUFFIX)) or "/lastMark" in path]
    path = rng.choice(likely if likely and rng.random() < 0.6 else paths)
    size = min(len(disk.read(path)), limits.get(path, 1 << 62))
    kind = rng.choice(("flip", "flip", "zero", "other", "cut", "missing"))
    if size == 0 or kind == "missing":
        disk.remove(path)
        return f"{path}: missing"
    if kind == "cut":
        at = rng.randrange(size)
        disk.cut(path, at)
    elif kind == "flip":
        at = rng.randrange(size)
        disk.flip(path, at, rng.randrange(8))
    else:
        at = rng.randrange(0, size, SECTOR)
        length = min(SECTOR, size - at)
        disk.overwrite(path, at, bytes(length) if kind == "zero" else rng.randbytes(length))
    return f"{path}: {kind} at {at} of {size}"


def _synced_sizes(disk: DiskImage, paths: Iterable[str]) -> dict[str, int]:
    """Return the certainly synced sizes of journal files."""
    sizes: dict[str, int] = {}
    for path in paths:
        seal = _SEAL.search(path)
        if seal is None:
            continue
        end = decode_seal(disk.read(path)).end
        if end is not None:
            # Each ledger directory has a copy, some of them older.
            name = f"journal{seal[1] or ''}/current/{file_name(end.file_id)}"
            for other in paths:
                if other.endswith(name):
                    sizes[other] = max(sizes.get(other, 0), end.offset)
    return sizes
