"""Garbage collection: decide which ledgers and entry logs a bookie may delete (pure), and delete them.

The set of live ledgers must be read from the metadata after the snapshot of the local ledgers was taken. A ledger's
metadata is written before its first entry, so a local ledger that is not live afterwards has been deleted.

Source: BookKeeper's ScanAndCompareGarbageCollector and GarbageCollectorThread.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import trio

from bookie.db_ledger_storage.log_map import LogUsage
from bookie.errors import BookieError
from quire.service.log import get_logger

_log = get_logger(__name__)

_IDS_PER_STEP: Final = 1000
"""Cluster ledger ids examined before other tasks run."""


class Collected(NamedTuple):
    """Result of one round.

    `bytes`: freed from entry logs. `failed`: logs that could not be read or removed; the next round tries again.
    """

    ledgers: tuple[int, ...] = ()
    logs: tuple[int, ...] = ()
    bytes: int = 0
    failed: tuple[int, ...] = ()


async def gone_ledgers(local: Collection[int], live: AsyncIterable[int]) -> list[int]:
    """Return the local ledgers that are not live, ascending.

    Holds only local ids in memory: a cluster may have many more.
    """
    left = set(local)
    count = 0
    async for ledger_id in live:
        left.discard(ledger_id)
        count += 1
        if count % _IDS_PER_STEP == 0:
            await trio.lowlevel.checkpoint()
    return sorted(left)


class Collectable(Protocol):
    """The part of the storage that the collector uses."""

    async def inactive_logs(self) -> list[int]:
        """Return the logs that are no longer written and whose entries are all in the index."""

    async def log_usage(self, log_id: int) -> LogUsage:
        """Return how much of a log is needed. It is worked out anew if ledgers were forgotten in the meantime."""

    async def local_ledgers(self) -> set[int]:
        """Return every ledger that has any data here."""

    async def delete_ledgers(
        self, ledgers: list[int], are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None
    ) -> list[int]:
        """Delete those ledgers that `are_gone` confirms and that are not written to in the meantime; return them."""

    async def logs_in_use(self, logs: Collection[int]) -> set[int]:
        """Return those of the logs to which a row of the location index points."""

    async def delete_log(self, log_id: int) -> int:
        """Delete the log; return the bytes freed."""


async def collect(
    storage: Collectable,
    live_ledgers: Callable[[], AsyncIterable[int]],
    are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None,
    settle: Callable[[], Awaitable[None]] | None = None,
) -> Collected:
    """Run one round. A log that cannot be read does not stop the others.

    `live_ledgers` reads the ids of all ledgers from the metadata; if it raises, nothing is deleted. Of the ledgers that
    seem deleted, only those are dropped that `are_gone`, if given, confirms. `settle`, if given, is called when some
    were dropped.
    """
    logs = await storage.inactive_logs()
    local = await storage.local_ledgers()
    gone = await gone_ledgers(local, live_ledgers())
    if gone:
        gone = await storage.delete_ledgers(gone, are_gone)
        local.difference_update(gone)
        if settle is not None:
            try:
                await settle()
            except (OSError, BookieError) as error:
                # A full disk may need the room that deleting the logs below frees.
                _log.warning("checkpoint after deleting ledgers failed, their ids stay held", reason=str(error))
    dropped = _Dropped()
    await _drop_logs(storage, logs, dropped)
    return Collected(ledgers=tuple(gone), logs=tuple(dropped.logs), bytes=dropped.bytes, failed=tuple(dropped.failed))


@dataclass(slots=True)
class _Dropped:
    """Totals of one round, as in `Collected`."""

    logs: list[int] = field(default_factory=list)
    bytes: int = 0
    failed: list[int] = field(default_factory=list)


async def _drop_logs(storage: Collectable, logs: list[int], dropped: _Dropped) -> None:
    """Delete those of `logs` that no ledger needs.

    `logs` were no longer written when the round began. So a ledger that was deleted since then, and made again, has its
    new rows elsewhere.
    """
    candidates: list[LogUsage] = []
    for log_id in logs:
        try:
            usage = await storage.log_usage(log_id)
        except (OSError, BookieError) as error:
            dropped.failed.append(log_id)
            _log.warning("entry log cannot be read", entry_log=f"{log_id:x}", reason=str(error))
            continue
        if not usage.ledgers:
            candidates.append(usage)
    # A map without a checksum, or a torn log, may hold more than could be read of it. The index decides.
    used = await storage.logs_in_use([log.log_id for log in candidates if not log.proven])
    for log in candidates:
        log_id = log.log_id
        if log_id in used:
            _log.warning("entry log holds more than its ledgers map lists", entry_log=f"{log_id:x}")
            continue
        try:
            dropped.bytes += await storage.delete_log(log_id)
            dropped.logs.append(log_id)
        except OSError as error:
            dropped.failed.append(log_id)
            _log.warning("entry log cannot be removed", entry_log=f"{log_id:x}", reason=str(error))
