"""Recovery at startup: everything in the journal behind the mark goes into the storage and is flushed; see
journal/seal.py.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from bookie.config import BookieConfig
from bookie.db_ledger_storage.storage import DbLedgerStorage
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
from bookie.journal.seal import SEAL_FILE, ReplayPlan, plan_replay, read_seal
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Disk, NotSyncedError, World

log = get_logger(__name__)

LAST_MARK_FILE: Final = "lastMark"
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Start(NamedTuple):
    """Facts that a start depends on.

    `has_served`: the folders were in use before, so the indexes must exist; `has_seal`: they were used by a version
    that keeps a seal; `skips`: a damaged part of the journal is left out.
    """

    plan: ReplayPlan
    has_served: bool
    has_seal: bool
    skips: bool = False


def last_mark_path(config: BookieConfig) -> str:
    return f"{config.ledger_directory}/current/{LAST_MARK_FILE}"


def seal_path_of(config: BookieConfig) -> str:
    return f"{config.ledger_directory}/current/{SEAL_FILE}"


async def plan(world: World, config: BookieConfig) -> Start:
    """Find where replay begins, and check that the journal is complete from there on, without changing anything.

    Raises: JournalDamagedError, OSError.
    """
    return await world.offload.run(partial(check_journal, world.disk, config), name="journal check")


def check_journal(disk: Disk, config: BookieConfig) -> Start:
    """As `plan`. Blocking."""
    start = read_plan(disk, f"{config.journal_directory}/current", last_mark_path(config), seal_path_of(config))
    replay = _replay(disk, config, start.plan, quiet=True)
    for _ in replay.batches():
        pass
    return start._replace(skips=bool(replay.given_up))


def read_plan(disk: Disk, directory: str, mark_path: str, seal_path: str) -> Start:
    """Find where replay of the journal in `directory` begins. Blocking. OSError."""
    try:
        last_mark = decode_last_mark(disk.read(mark_path))
    except FileNotFoundError:
        last_mark = NO_MARK
    sealed = read_seal(disk, seal_path)
    reached = sealed.end.file_id if sealed is not None and sealed.end is not None else -1
    ids = written_ids(disk, directory, reached)
    found = plan_replay(last_mark, sealed, ids, last_mark_path=mark_path, seal_path=seal_path)
    has_served = last_mark != NO_MARK or sealed is not None or bool(journal_ids(disk, directory))
    return Start(found, has_served=has_served, has_seal=sealed is not None and sealed.mark is not None)


def _replay(disk: Disk, config: BookieConfig, plan: ReplayPlan, *, quiet: bool = False) -> Replay:
    directory = f"{config.journal_directory}/current"
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


async def recover(world: World, config: BookieConfig, storage: DbLedgerStorage, plan: ReplayPlan) -> Recovered:
    """Replay and flush.

    Raises: JournalDamagedError, StorageFailedError, OSError (also if the room is not even enough for the write cache).
    """
    run = world.offload.run
    for finding in plan.findings:
        log.warning("found when the bookie started", file=finding.file, found=finding.what)
    reading = _replay(world.disk, config, plan)
    batches = reading.batches()
    impossible = 0
    while (records := await run(partial(next, batches, None), name="journal replay")) is not None:
        for record in records:
            if not isinstance(record, Force) and record.ledger_id < 0:
                impossible += 1  # an older bookie took fences of such ledgers, which no index can have
            else:
                await _apply(storage, record)
    if reading.end == NO_MARK:
        return Recovered(None)
    if impossible:
        log.warning("journal records of impossible ledgers left out", records=impossible)
    if reading.records:
        log.info("journal replayed", records=reading.records, from_mark=str(plan.mark), to_mark=str(reading.end))
    try:
        await storage.flush()
    except OSError as error:
        if error.errno not in NO_ROOM or isinstance(error, NotSyncedError):
            raise
        return Recovered(reading.end, str(error))
    return Recovered(reading.end)


async def _apply(storage: DbLedgerStorage, record: Record) -> None:
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
