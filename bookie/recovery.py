"""Recovery at startup: everything in the journal behind the mark goes into the storage and is flushed; see
journal/seal.py.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

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

log = get_logger(__name__)

LAST_MARK_FILE: Final = "lastMark"
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


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
    """Find where replay begins, and check that the journals are complete from there on, without changing anything.

    Raises: JournalDamagedError, OSError.
    """
    return await world.offload.run(partial(check_journals, world.disk, config), name="journal check")


def check_journals(disk: Disk, config: BookieConfig) -> Starts:
    """As `plan`. Blocking."""
    starts = read_plans(disk, config)
    skips = False
    for journal, found in enumerate(starts.plans):
        replay = _replay(disk, config, journal, found, quiet=True)
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
    return Replay(disk, directory, plan.mark, skip, promised=plan.promised, named=plan.named, quiet=quiet)


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
            if error.errno not in NO_ROOM or isinstance(error, NotSyncedError):
                raise
            no_room = str(error)
    return [Recovered(end, no_room if end is not None else "") for end in ends]


async def _replay_one(
    world: World, config: BookieConfig, storage: LedgerStorage, journal: int, plan: ReplayPlan
) -> LogMark | None:
    """Replay one journal into the storage; return where it ends, None if there is none."""
    run = world.offload.run
    for finding in plan.findings:
        log.warning("found when the bookie started", file=finding.file, found=finding.what)
    reading = _replay(world.disk, config, journal, plan)
    batches = reading.batches()
    impossible = 0
    while (records := await run(partial(next, batches, None), name="journal replay")) is not None:
        for record in records:
            if not isinstance(record, Force) and record.ledger_id < 0:
                impossible += 1  # an older bookie took fences of such ledgers, which no index can have
            else:
                await _apply(storage, record)
    if reading.end == NO_MARK:
        return None
    if impossible:
        log.warning("journal records of impossible ledgers left out", records=impossible)
    if reading.records:
        log.info("journal replayed", records=reading.records, from_mark=str(plan.mark), to_mark=str(reading.end))
    return reading.end


async def _apply(storage: LedgerStorage, record: Record) -> None:
    match record:
        case Run():
            if storage.master_key(record.ledger_id) is None:
                # A ledger's key is written before its first entry: without it the ledger has been deleted since.
                log.info("journal record of a deleted ledger left out", ledger=record.ledger_id)
                return
            try:
                storage.add(record)
            except WriteCacheFullError:
                await storage.flush()
                storage.add(record)
        case LedgerKey(ledger_id, key):
            if storage.master_key(ledger_id) is None:
                storage.set_master_key(ledger_id, key)
        case Fence(ledger_id):
            storage.set_fenced(ledger_id)
        case ExplicitLac(ledger_id, package):
            storage.set_explicit_lac(ledger_id, package)
        case Force():
            pass
