"""Bugs to plant in the deletion of ledgers, in compactions of entry logs, and in scrubs; see `bugs`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

import trio

from bookie.db_ledger_storage.location_index import _KEY, _LOCATION, LocationIndex
from bookie.db_ledger_storage.log_contents import LogContents, LogMetadata
from bookie.db_ledger_storage.log_map import LogMap, LogUsage
from bookie.db_ledger_storage.log_writing.log_writer import LogWriter
from bookie.scrubber.healing import Healed, Healer
from simulation.common.patching import Patch


def _copies_not_synced() -> list[Patch]:
    """A compaction points rows to copies that no sync has made durable, and deletes the log they come from."""

    def forget(self: LogWriter) -> None:
        if self.log is not None:
            self.log.safe = self.log.position
            self.log.safe_ledgers = dict(self.log.ledgers)

    return [(LogWriter, "sync", forget)]


def _log_deleted_before_index_sync() -> list[Patch]:
    """A compaction deletes a log before the rows that point elsewhere are durable (bookkeeper#1534)."""

    def lazy(self: LocationIndex) -> None:
        return

    return [(LocationIndex, "sync", lazy)]


def _rows_moved_blindly() -> list[Patch]:
    """A compaction writes rows whatever they say, as the original does: also of ledgers deleted meanwhile."""

    def overwrite(self: LocationIndex, log_id: int, entries: Sequence[tuple[int, int, int]]) -> int:
        batch = self._rows.batch()
        for ledger_id, entry_id, location in entries:
            batch.put(_KEY.pack(ledger_id, entry_id), _LOCATION.pack(location))
        self._rows.write(batch, sync=False)
        return len(entries)

    return [(LocationIndex, "move", overwrite)]


def _torn_log_is_empty() -> list[Patch]:
    """A log without a ledgers map counts as empty (bookkeeper#4607)."""
    read: Callable[[LogContents, int], Generator[LogMetadata | None, None, None]] = LogContents.read

    def blind(self: LogContents, log_id: int) -> Generator[LogMetadata | None, None, None]:
        noted = self.noted
        self.noted = lambda log_id: {}
        try:
            yield from read(self, log_id)
        finally:
            self.noted = noted

    return [(LogContents, "read", blind)]


def _usage_not_worked_out_anew() -> list[Patch]:
    """The content of a log is worked out once, however many of its ledgers are deleted later."""

    def stale(self: LogMap, log_id: int) -> LogUsage | None:
        return self._usages.get(log_id)

    return [(LogMap, "usage", stale)]


def _moved_row_dropped() -> list[Patch]:
    """A compaction drops the row of the last entry that it moves together with others."""
    move: Callable[[LocationIndex, int, Sequence[tuple[int, int, int]]], int] = LocationIndex.move

    def dropping(self: LocationIndex, log_id: int, entries: Sequence[tuple[int, int, int]]) -> int:
        moved = move(self, log_id, entries)
        if len(entries) > 1:
            ledger_id, entry_id, _ = entries[-1]
            batch = self._rows.batch()
            batch.delete(_KEY.pack(ledger_id, entry_id))
            self._rows.write(batch, sync=False)
        return moved

    return [(LocationIndex, "move", dropping)]


def _healed_unseen() -> list[Patch]:
    """A scrub counts damaged entries as healed, and gets no copy of them."""

    async def believing(self: Healer, *arguments: object) -> Healed:
        await trio.lowlevel.checkpoint()
        entry_ids = arguments[-1]
        assert isinstance(entry_ids, Iterable)
        return Healed(sorted(entry_ids), "")

    return [(Healer, "heal", believing)]


BUGS_OF_COMPACTION: dict[str, Callable[[], list[Patch]]] = {
    "copies-not-synced": _copies_not_synced,
    "log-deleted-before-index-sync": _log_deleted_before_index_sync,
    "rows-moved-blindly": _rows_moved_blindly,
    "torn-log-is-empty": _torn_log_is_empty,
    "usage-not-worked-out-anew": _usage_not_worked_out_anew,
    "moved-row-dropped": _moved_row_dropped,
    "healed-unseen": _healed_unseen,
}
"""Bugs by name; the docstring describes each."""
