"""Recovery at startup: everything in the journal behind the mark goes into the storage and is flushed; see
journal/seal.py.

    worker   reads and decodes a part of some megabytes  ->  loop   puts its runs into the write cache
    worker   flushes what the cache has, meanwhile

The journal is read once. So damage in its middle is found when what is before it may be flushed already. That is what a
crash in the middle of a recovery leaves: the mark has not moved, the next start begins there again, and duplicates do
no harm. Missing files and bad headers are found before anything is changed. With skipReplayJournalInvalidRecord the
journal is read twice: what is skipped must be known first, because it may put ledgers into limbo.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import trio

from bookie.config import BookieConfig
from bookie.directories.storage import LedgerStorage
from bookie.errors import WriteCacheFullError
from bookie.journal.format import (
    NO_MARK,
    ExplicitLac,
    Fence,
    Force,
    LedgerKey,
    LogMark,
    Record,
    decode_last_mark,
)
from bookie.journal.replay import Replay, journal_ids, written_ids
from bookie.journal.seal import SEAL_SUFFIX, ReplayPlan, Sealed, best_seal, plan_replay, read_seal
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Disk, NotSyncedError, World
from quire.world.unwrap import first_leaf

log = get_logger(__name__)

LAST_MARK_FILE: Final = "lastMark"
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
PART_BYTES: Final = 8 << 20
"""Bytes of entries that a worker reads and decodes at a time..."""
PART_RECORDS: Final = 20_000
"""...or as many records, whichever is reached first."""
RECORDS_PER_TURN: Final = 500
"""Records that go into the write cache in one turn of the loop: about 2 ms."""


class Starts(NamedTuple):
    """Facts that a start depends on: `plans` for each journal, `served` and `sealed` for each ledger directory.

    `served`: the folders were in use before, so the indexes must exist; `sealed`: they were used by a version that
    keeps a seal. `skips`: a damaged part of a journal is left out; only `plan` finds out.
    """

    plans: tuple[ReplayPlan, ...]
    served: tuple[bool, ...]
    sealed: tuple[bool, ...]
    skips: bool = False


def mark_name(journal: int, journals: int) -> str:
    """Return the name of the file with the mark of a journal; of its seal it is the first part.

    >>> mark_name(0, 1), mark_name(1, 2)
    ('lastMark', 'lastMark.1')
    """
    return LAST_MARK_FILE if journals == 1 else f"{LAST_MARK_FILE}.{journal}"


def last_mark_path(config: BookieConfig, journal: int = 0, directory: int = 0) -> str:
    """Return the path of the mark of a journal in a ledger directory. Each ledger directory has one of each journal."""
    return f"{config.ledger_directories[directory]}/current/{mark_name(journal, len(config.journal_directories))}"


def seal_path_of(config: BookieConfig, journal: int = 0, directory: int = 0) -> str:
    """Return the path of the seal that belongs to `last_mark_path`."""
    return f"{last_mark_path(config, journal, directory)}{SEAL_SUFFIX}"


async def plan(world: World, config: BookieConfig) -> Starts:
    """Find where replay begins, and check that the journals' files are there, without changing anything.

    Raises: JournalDamagedError, OSError.
    """
    return await world.offload.run(partial(check_journals, world.disk, config), name="journal check")


def check_journals(disk: Disk, config: BookieConfig) -> Starts:
    """As `plan`. Blocking."""
    starts = read_plans(disk, config)
    skips = False
    for journal, found in enumerate(starts.plans):
        replay = _replay(disk, config, journal, found, quiet=True)
        if not config.skip_invalid_records:
            replay.check_files()
            continue
        for _ in replay.batches():
            pass
        skips = skips or bool(replay.given_up)
    return starts._replace(skips=skips)


def read_plans(disk: Disk, config: BookieConfig) -> Starts:
    """Find where replay of each journal begins. Blocking. OSError."""
    plans: list[ReplayPlan] = []
    directories = range(len(config.ledger_directories))
    served, sealed = [False] * len(directories), [False] * len(directories)
    has_journal = False
    for journal, folder in enumerate(config.journal_directories):
        marks: list[LogMark | None] = []
        seals: list[Sealed] = []
        for directory in directories:
            mark = _read_mark(disk, last_mark_path(config, journal, directory))
            seal = read_seal(disk, seal_path_of(config, journal, directory))
            marks.append(mark)
            if seal is not None:
                seals.append(seal)
                sealed[directory] = sealed[directory] or seal.mark is not None
            served[directory] = served[directory] or mark != NO_MARK or seal is not None
        current = f"{folder}/current"
        found = _plan(
            disk,
            current,
            max((mark for mark in marks if mark is not None), default=None),
            best_seal(seals),
            mark_path=last_mark_path(config, journal),
            seal_path=seal_path_of(config, journal),
        )
        plans.append(found)
        has_journal = has_journal or bool(journal_ids(disk, current))
    if has_journal and not any(served):
        served = [True] * len(served)
    return Starts(tuple(plans), tuple(served), tuple(sealed))


def _read_mark(disk: Disk, path: str) -> LogMark | None:
    """Return the mark in a file, NO_MARK if there is none, None if it is damaged."""
    try:
        return decode_last_mark(disk.read(path))
    except FileNotFoundError:
        return NO_MARK


def _plan(
    disk: Disk, directory: str, last_mark: LogMark | None, sealed: Sealed | None, *, mark_path: str, seal_path: str
) -> ReplayPlan:
    reached = sealed.end.file_id if sealed is not None and sealed.end is not None else -1
    ids = written_ids(disk, directory, reached)
    return plan_replay(last_mark, sealed, ids, last_mark_path=mark_path, seal_path=seal_path)


def _replay(disk: Disk, config: BookieConfig, journal: int, plan: ReplayPlan, *, quiet: bool = False) -> Replay:
    directory = f"{config.journal_directories[journal]}/current"
    skip = config.skip_invalid_records
    return Replay(
        disk, directory, plan.mark, skip, promised=plan.promised, named=plan.named, quiet=quiet, forgets=not quiet
    )


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of a recovery.

    `end`: end of the journal, None if there is none. `no_room`: why replayed entries are not flushed; they are in the
    write cache and the mark stays. "": all are flushed, and the mark may move to `end`.
    """

    end: LogMark | None
    no_room: str = ""


async def recover(
    world: World, config: BookieConfig, storage: LedgerStorage, plans: Sequence[ReplayPlan]
) -> list[Recovered]:
    """Replay the journals, one after the other, and flush; return the result for each.

    Raises: JournalDamagedError, StorageFailedError, OSError (also if the room is not even enough for the write cache).
    """
    ends = [await _replay_one(world, config, storage, journal, plan) for journal, plan in enumerate(plans)]
    no_room = ""
    if any(end is not None for end in ends):
        try:
            await storage.flush()
        except OSError as error:
            if not _is_no_room(error):
                raise
            no_room = str(error)
    return [Recovered(end, no_room if end is not None else "") for end in ends]


def _is_no_room(error: OSError) -> bool:
    return error.errno in NO_ROOM and not isinstance(error, NotSyncedError)


async def _replay_one(
    world: World, config: BookieConfig, storage: LedgerStorage, journal: int, plan: ReplayPlan
) -> LogMark | None:
    """Replay one journal into the storage; return where it ends, None if there is none."""
    for finding in plan.findings:
        log.warning("found when the bookie started", file=finding.file, found=finding.what)
    reading = _replay(world.disk, config, journal, plan)
    replaying = _Replaying(world, storage, reading.batches())
    part = await replaying.read()
    if part.is_last:
        await replaying.apply(part)
    else:
        await replaying.apply_all(part)
    if reading.end == NO_MARK:
        return None
    if replaying.impossible:
        log.warning("journal records of impossible ledgers left out", records=replaying.impossible)
    if reading.records:
        log.info("journal replayed", records=reading.records, from_mark=str(plan.mark), to_mark=str(reading.end))
    return reading.end


class _Part(NamedTuple):
    """The next records of a journal."""

    records: list[Record]
    is_last: bool


class _Replaying:
    """Replay of one journal, whose records are in `batches`."""

    def __init__(self, world: World, storage: LedgerStorage, batches: Iterator[list[Record]]) -> None:
        self._world = world
        self._storage = storage
        self._batches = batches
        self._flushing: trio.Event | None = None
        """Set when the flush that runs beside the replay has ended; None if none runs."""
        self._has_room = True
        """False if a flush beside the replay found no room: then none is begun any more, and the last one decides."""
        self.impossible = 0
        """Records of ledgers that no index can have. An older bookie took fences of such ledgers."""

    async def read(self) -> _Part:
        """Read the next part. JournalDamagedError, OSError."""
        return await self._world.offload.run(self._read, name="journal replay")

    def _read(self) -> _Part:
        records: list[Record] = []
        size = 0
        for batch in self._batches:
            records += batch
            size += sum([record.size for record in batch if isinstance(record, Run)])
            if size >= PART_BYTES or len(records) >= PART_RECORDS:
                return _Part(records, is_last=False)
        return _Part(records, is_last=True)

    async def apply_all(self, part: _Part) -> None:
        """Apply a part and all that follow. The next one is read meanwhile, and the write cache flushed."""
        try:
            async with trio.open_nursery() as nursery:
                send, parts = trio.open_memory_channel[_Part](1)
                nursery.start_soon(self._read_all, send, name="journal replay")
                await self.apply(part)
                async for each in parts:
                    await self.apply(each)
                    if self._flushing is None and self._has_room and self._storage.flush_due:
                        self._flushing = trio.Event()
                        nursery.start_soon(self._flush, self._flushing, name="flush beside the replay")
        except BaseExceptionGroup as group:
            raise first_leaf(group) from None

    async def _read_all(self, send: trio.MemorySendChannel[_Part]) -> None:
        async with send:
            is_last = False
            while not is_last:
                part = await self.read()
                await send.send(part)
                is_last = part.is_last

    async def _flush(self, ended: trio.Event) -> None:
        try:
            await self._storage.flush()
        except OSError as error:
            if not _is_no_room(error):
                raise
            self._has_room = False
        self._flushing = None
        ended.set()

    async def apply(self, part: _Part) -> None:
        """Put the records into the storage. OSError, StorageFailedError."""
        for number, record in enumerate(part.records, 1):
            if not isinstance(record, Force) and record.ledger_id < 0:
                self.impossible += 1
            elif isinstance(record, Run):
                await self._add(record)
            else:
                _apply(self._storage, record)
            if number % RECORDS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()

    async def _add(self, run: Run) -> None:
        storage = self._storage
        if storage.master_key(run.ledger_id) is None:
            # A ledger's key is written before its first entry: without it the ledger has been deleted since.
            log.info("journal record of a deleted ledger left out", ledger=run.ledger_id)
            return
        while True:
            try:
                storage.add(run)
            except WriteCacheFullError:
                if self._flushing is not None:
                    await self._flushing.wait()
                else:
                    await storage.flush()
            else:
                return


def _apply(storage: LedgerStorage, record: LedgerKey | Fence | ExplicitLac | Force) -> None:
    match record:
        case LedgerKey(ledger_id, key):
            if storage.master_key(ledger_id) is None:
                storage.set_master_key(ledger_id, key)
        case Fence(ledger_id):
            storage.set_fenced(ledger_id)
        case ExplicitLac(ledger_id, package):
            storage.set_explicit_lac(ledger_id, package)
        case Force():
            pass
