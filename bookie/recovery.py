"""What a start takes from the journal: everything behind lastMark, into the storage, and flushed there."""

from __future__ import annotations

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
from bookie.journal.replay import Replay
from bookie.run import Run
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)

LAST_MARK_FILE: Final = "lastMark"


class Recovered(NamedTuple):
    """`mark` is what lastMark says, `end` where the journal ends; None if there is none."""

    mark: LogMark
    end: LogMark | None


def last_mark_path(config: BookieConfig) -> str:
    return f"{config.ledger_directory}/current/{LAST_MARK_FILE}"


async def recover(world: World, config: BookieConfig, storage: DbLedgerStorage) -> Recovered:
    """Replay and flush. The caller then writes lastMark. JournalDamagedError, StorageFailedError, OSError."""
    run = world.offload.run
    mark = await run(partial(_read_last_mark, world, last_mark_path(config)), name="last mark")
    reading = Replay(world.disk, f"{config.journal_directory}/current", mark, config.skip_invalid_records)
    batches = reading.batches()
    while (records := await run(partial(next, batches, None), name="journal replay")) is not None:
        for record in records:
            await _apply(storage, record)
    if reading.end == NO_MARK:
        return Recovered(mark, None)
    if reading.records:
        log.info("journal replayed", records=reading.records, from_mark=str(mark), to_mark=str(reading.end))
    await storage.flush()
    return Recovered(mark, reading.end)


async def _apply(storage: DbLedgerStorage, record: Record) -> None:
    match record:
        case Run():
            if storage.master_key(record.ledger_id) is None:
                # Its key is written before its first entry: the ledger has been deleted since.
                log.info("journal record of a deleted ledger left out", ledger_id=record.ledger_id)
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


def _read_last_mark(world: World, path: str) -> LogMark:
    try:
        mark = decode_last_mark(world.disk.read(path))
    except FileNotFoundError:
        return NO_MARK
    if mark is None:
        log.warning("lastMark is not 16 bytes long: every journal is replayed", file=path)
    return mark or NO_MARK
