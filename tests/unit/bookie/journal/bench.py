"""A group writer on a simulated disk, and the records that replay finds behind it."""

from __future__ import annotations

from collections.abc import Sequence

from bookie.errors import BookieError
from bookie.journal.config import JournalConfig
from bookie.journal.format import NO_MARK, Force, Record
from bookie.journal.group_writer import GroupResult, GroupWriter, Item
from bookie.journal.replay import Replay
from quire.wire.bookkeeper.run import Run
from quire.world.doors import World
from simulation.machines.disk_image import DiskImage
from simulation.machines.host import Host
from simulation.machines.world import Universe
from tests.unit.bookie.build import run_of

FOLDER = "/journal"


def ignore(_: BookieError | None) -> None: ...


def items(records: Sequence[Record], key: bytes | None = None, *, deferred: bool = False) -> list[Item]:
    return [Item(r, r.size if isinstance(r, Run) else len(r.encode()), key, ignore, deferred) for r in records]


def replayed(world: World, folder: str = FOLDER) -> list[object]:
    """Return the records in the journal, runs as (ledger id, first, last). Raises JournalDamagedError."""
    return [
        (record.ledger_id, record.first, record.last) if isinstance(record, Run) else record
        for batch in Replay(world.disk, folder, NO_MARK).batches()
        for record in batch
    ]


class Bench:
    """A writer on a disk that fails on demand, and whose power can be cut."""

    def __init__(self, config: JournalConfig | None = None, *, seed: int = 1) -> None:
        self.host: Host = Universe(seed).host("bookie")
        self.world = self.host.world()
        self.world.disk.make_dirs(FOLDER)
        self.writer = GroupWriter(self.world.disk, FOLDER, config or JournalConfig(preallocate=0))
        self.writer.create(9, None)

    @property
    def image(self) -> DiskImage:
        return self.host.disk

    def write(self, *records: Record, key: bytes | None = None, deferred: bool = False) -> GroupResult:
        (result,) = self.writer.write(items(records, key, deferred=deferred))
        return result

    def defer(self, first: int, count: int = 1) -> GroupResult:
        return self.write(run_of(1, first, count), deferred=True)

    def add(self, first: int) -> GroupResult:
        return self.write(run_of(2, first, 1))

    def force(self) -> GroupResult:
        (result,) = self.writer.write([Item(Force(1), 0, None, ignore)])
        return result

    def crash(self) -> None:
        """Discard all writes that no sync covered."""
        self.host.cut_power()
        self.world = self.host.world()

    def replayed(self) -> list[object]:
        return replayed(self.world)

    def entries(self) -> list[tuple[int, int]]:
        """Cut the power; return the entries that replay finds, as (ledger id, entry id)."""
        self.crash()
        runs = [record for record in self.replayed() if isinstance(record, tuple)]
        return [(ledger_id, entry_id) for ledger_id, first, last in runs for entry_id in range(first, last + 1)]
