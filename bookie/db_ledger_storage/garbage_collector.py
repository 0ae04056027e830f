"""Garbage collection: decide which ledgers and entry logs a bookie may delete (pure), and delete them.

The ids of local and of live ledgers are compared while both are read. A ledger that is made meanwhile may look deleted,
so each is looked up once more. A ledger's metadata is written before its first entry, so a local ledger that has none
afterwards has been deleted.

Source: BookKeeper's ScanAndCompareGarbageCollector and GarbageCollectorThread.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import trio

from bookie.db_ledger_storage.log_map import LogUsage
from bookie.db_ledger_storage.options import StorageStats
from bookie.errors import BookieError, LedgersUnsortedError
from quire.service.log import get_logger

_log = get_logger(__name__)

_IDS_PER_STEP: Final = 1000
"""Cluster ledger ids examined before other tasks run."""
GONE_MAX: Final = 1 << 17
"""Deleted ledgers found in one round; the next one finds more."""
_DELETED_TOGETHER: Final = 10_000


class Collected(NamedTuple):
    """Result of one round.

    `bytes`: freed from entry logs. `failed`: logs that could not be read or removed; the next round tries again.
    """

    ledgers: tuple[int, ...] = ()
    logs: tuple[int, ...] = ()
    bytes: int = 0
    failed: tuple[int, ...] = ()


async def gone_ledgers(local: AsyncGenerator[list[int], None], live: AsyncGenerator[int, None]) -> array[int]:
    """Return the first `GONE_MAX` local ledgers that are not live, ascending, as all that is passed.

    Both are read side by side, so that neither is in memory: each may have millions.
    """
    gone = array("q")
    count, before, sorted_ids = 0, -1, True
    ids: list[int] | None = []
    at = 0
    async with aclosing(local) as ranges, aclosing(live) as living:

        async def pass_up_to(live_id: int) -> None:
            """Count what is below `live_id` as gone, and go past it."""
            nonlocal ids, at
            while ids is not None:
                while at < len(ids) and ids[at] < live_id:
                    if len(gone) < GONE_MAX:
                        gone.append(ids[at])
                    at += 1
                if at < len(ids):
                    at += ids[at] == live_id
                    return
                ids, at = await anext(ranges, None), 0

        # It is read to its end even if it is unsorted: a generator that is left alone is not closed in time.
        async for live_id in living:
            sorted_ids = sorted_ids and live_id > before
            before = live_id
            if sorted_ids:
                await pass_up_to(live_id)
            count += 1
            if count % _IDS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        if not sorted_ids:
            raise LedgersUnsortedError("the metadata lists ledgers in another order than that of their ids")
        await pass_up_to(1 << 64)
    return gone


class Collectable(Protocol):
    """The part of the storage that the collector uses."""

    async def inactive_logs(self) -> list[int]:
        """Return the logs that are no longer written and whose entries are all in the index."""

    async def log_usage(self, log_id: int) -> LogUsage:
        """Return how much of a log is needed. It is worked out anew if ledgers were forgotten in the meantime."""

    def local_ledgers(self) -> AsyncGenerator[list[int], None]:
        """Yield every ledger that has any data here, some at a time, all ascending."""

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
    live_ledgers: Callable[[], AsyncGenerator[int, None]],
    are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None,
    settle: Callable[[], Awaitable[None]] | None = None,
    stats: StorageStats | None = None,
) -> Collected:
    """Run one round. A log that cannot be read does not stop the others.

    `live_ledgers` reads the ids of all ledgers from the metadata, ascending; if it raises, nothing is deleted. Of the
    ledgers that seem deleted, only those are dropped that `are_gone` confirms; without it none may be made meanwhile.
    `settle`, if given, is called when some were dropped. `stats` gets the times of both parts.
    """
    stats = stats or StorageStats()
    with stats.gc_ledgers.timed():
        logs = await storage.inactive_logs()
        gone = await gone_ledgers(storage.local_ledgers(), live_ledgers())
        deleted: list[int] = []
        for start in range(0, len(gone), _DELETED_TOGETHER):
            deleted += await storage.delete_ledgers(list(gone[start : start + _DELETED_TOGETHER]), are_gone)
        if gone and settle is not None:
            try:
                await settle()
            except (OSError, BookieError) as error:
                # A full disk may need the room that deleting the logs below frees.
                _log.warning("checkpoint after deleting ledgers failed, their ids stay held", reason=str(error))
    dropped = _Dropped()
    with stats.gc_logs.timed():
        await _drop_logs(storage, logs, dropped)
    return Collected(
        ledgers=tuple(deleted), logs=tuple(dropped.logs), bytes=dropped.bytes, failed=tuple(dropped.failed)
    )


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
