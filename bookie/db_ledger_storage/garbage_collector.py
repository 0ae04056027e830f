"""Which ledgers and entry logs a bookie may drop (pure), and dropping them.

The set of live ledgers must be taken from the metadata after the snapshot of the local ones: a ledger's metadata is
written before its first entry, so whatever is local and was not live afterwards is gone for good.

Source: BookKeeper's ScanAndCompareGarbageCollector and GarbageCollectorThread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bookie.db_ledger_storage.entry_log import LogMetadata
from bookie.errors import BookieError
from quire.service.log import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What one round dropped; `bytes` of entry logs. `failed`: logs that could not be read or removed, left for the next round."""

    ledgers: tuple[int, ...] = ()
    logs: tuple[int, ...] = ()
    bytes: int = 0
    failed: tuple[int, ...] = ()


def gone_ledgers(local: Iterable[int], live: Collection[int]) -> list[int]:
    """The local ledgers that are not live, in order.

    >>> gone_ledgers([1, 2, 3], {2, 9})
    [1, 3]
    """
    return [ledger_id for ledger_id in local if ledger_id not in live]


def droppable_logs(logs: Iterable[LogMetadata], local: Collection[int]) -> list[int]:
    """The logs that hold no entry of a local ledger."""
    return [log.log_id for log in logs if not any(ledger_id in local for ledger_id in log.ledgers)]


class Collectable(Protocol):
    """What the collector needs of the storage."""

    async def inactive_logs(self) -> list[int]:
        """Logs that are not written any more and whose entries are all in the index."""

    async def log_metadata(self, log_id: int) -> LogMetadata: ...

    async def local_ledgers(self) -> list[int]:
        """Every ledger of which anything is here, sorted."""

    async def delete_ledgers(self, ledgers: list[int]) -> None: ...

    async def logs_in_use(self, logs: list[int]) -> set[int]:
        """Those into which a row of the location index leads."""

    async def delete_log(self, log_id: int) -> int:
        """Returns the bytes freed."""


async def collect(
    storage: Collectable,
    live_ledgers: Callable[[], Awaitable[Collection[int]]],
    are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None,
) -> Collected:
    """One round. `live_ledgers` reads the ids of all ledgers from the metadata; if it raises, nothing is dropped. Those
    that seem gone are dropped as far as `are_gone`, if given, confirms it.

    A log that cannot be read does not stop the others.
    """
    failed: list[int] = []
    contents: dict[int, LogMetadata] = {}
    for log_id in await storage.inactive_logs():
        try:
            contents[log_id] = await storage.log_metadata(log_id)
        except (OSError, BookieError) as error:
            failed.append(log_id)
            _log.warning("entry log cannot be read", log=f"{log_id:x}", error=str(error))
    local = await storage.local_ledgers()
    live = await live_ledgers()
    gone = gone_ledgers(local, live)
    if gone and are_gone is not None:
        gone = await are_gone(gone)
    if gone:
        await storage.delete_ledgers(gone)
    logs, freed = await _drop_logs(storage, contents, failed)
    return Collected(ledgers=tuple(gone), logs=tuple(logs), bytes=freed, failed=tuple(failed))


async def _drop_logs(
    storage: Collectable, contents: Mapping[int, LogMetadata], failed: list[int]
) -> tuple[list[int], int]:
    remaining = set(await storage.local_ledgers())
    candidates = droppable_logs(contents.values(), remaining)
    # The last word has the index: a damaged or torn log may hold more than could be read of it.
    used = await storage.logs_in_use(candidates)
    dropped: list[int] = []
    freed = 0
    for log_id in candidates:
        if log_id in used:
            _log.warning("entry log holds more than its ledgers map says", log=f"{log_id:x}")
            continue
        try:
            freed += await storage.delete_log(log_id)
            dropped.append(log_id)
        except OSError as error:
            failed.append(log_id)
            _log.warning("entry log cannot be removed", log=f"{log_id:x}", error=str(error))
    return dropped, freed
