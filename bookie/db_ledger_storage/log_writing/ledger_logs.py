"""Entry logs of single ledgers (entryLogPerLedgerEnabled): each ledger that is written has its own. Blocking.

When a ledger is deleted its logs go as they are, so nothing is copied. The price is one sync for each ledger in a
flush, and one open file for each that is written.

Source: BookKeeper's EntryLogManagerForEntryLogPerLedger, which DbLedgerStorage uses too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from bookie.db_ledger_storage.log_writing.log_writer import LogWriter, OpenLog
from bookie.errors import StorageFailedError
from quire.service.measuring.summaries import SIZE_BOUNDS, Times
from quire.wire.bookkeeper.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLogOptions:
    """Bounds. The original's key is in brackets."""

    active_max: int = 500
    """Logs that are written at the same time (maximumNumberOfActiveEntryLogs)."""
    idle_s: float = 300
    """Seconds without an entry after which a log is ended (entrylogMapAccessExpiryTimeInSeconds)."""
    counted_factor: int = 10
    """Logs are counted for so many times as many ledgers, and so many times as long
    (entryLogPerLedgerCounterLimitsMultFactor).
    """


@dataclass(slots=True)
class LedgerLogStats:
    """Plain counters, read at scrape time."""

    active: int = 0
    """Ledgers whose log is written."""
    ended_idle: int = 0
    ended_for_room: int = 0
    """Logs ended because there were too many."""
    ledgers_with_several: int = 0
    logs_per_ledger: Times = field(default_factory=lambda: Times(SIZE_BOUNDS))
    """Number of logs of each ledger that is no longer counted."""


class LogCounts:
    """Numbers of logs of the ledgers that were written lately. Pure."""

    def __init__(self, options: LedgerLogOptions, stats: LedgerLogStats) -> None:
        self._ledgers_max = options.active_max * options.counted_factor
        self._idle_s = options.idle_s * options.counted_factor
        self._stats = stats
        self._counts: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def begun(self, ledger_id: int, now: float) -> None:
        """Count a new log of a ledger."""
        count = self._counts.pop(ledger_id, (0, 0.0))[0] + 1
        self._counts[ledger_id] = count, now
        self._stats.ledgers_with_several += count == 2
        while self._counts:
            oldest, (count, used_at) = next(iter(self._counts.items()))
            if len(self._counts) <= self._ledgers_max and used_at + self._idle_s > now:
                return
            del self._counts[oldest]
            self._stats.logs_per_ledger.observe(count)


class LedgerLogs:
    """Writers of the logs of one folder, by ledger. `open_writer(begin)` returns one that begins logs with `begin`."""

    def __init__(
        self,
        options: LedgerLogOptions,
        create: Callable[[], OpenLog],
        open_writer: Callable[[Callable[[], OpenLog]], LogWriter],
        stats: LedgerLogStats,
    ) -> None:
        self._options = options
        self._create = create
        self._open_writer = open_writer
        self._writers: OrderedDict[int, tuple[LogWriter, float]] = OrderedDict()
        """Writer of each ledger with the time of its last entries, the longest idle first."""
        self._counts = LogCounts(options, stats)
        self._stats = stats
        self.now = 0.0
        """Time of the flush or the round that calls: seconds of trio's clock, which workers cannot read."""

    def append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        """As LogWriter.append; runs of one ledger come together. What a failed call wrote is cut off again, but for
        that of ledgers beyond `active_max`.
        """
        placed: list[tuple[Run, int]] = []
        staged: dict[int, LogWriter] = {}
        try:
            for ledger_id, some in groupby(runs, lambda run: run.ledger_id):
                if ledger_id not in self._writers and len(self._writers) >= self._options.active_max:
                    oldest = next(iter(self._writers))
                    if oldest in staged:
                        self._commit(staged)
                    self._end(oldest)
                    self._stats.ended_for_room += 1
                writer = staged[ledger_id] = self._writer(ledger_id)
                placed += writer.write(some)
            self._commit(staged)
        except (OSError, StorageFailedError):
            for ledger_id, writer in staged.items():
                writer.abandon()
                self._writers.pop(ledger_id, None)
            raise
        finally:
            self._stats.active = len(self._writers)
        return placed

    def _writer(self, ledger_id: int) -> LogWriter:
        found = self._writers.pop(ledger_id, None)

        def begin() -> OpenLog:
            log = self._create()
            self._counts.begun(ledger_id, self.now)
            return log

        writer = self._open_writer(begin) if found is None else found[0]
        self._writers[ledger_id] = writer, self.now
        return writer

    def _commit(self, staged: dict[int, LogWriter]) -> None:
        for writer in staged.values():
            writer.sync_only()
        for writer in staged.values():
            writer.settle()
        staged.clear()

    def _end(self, ledger_id: int) -> None:
        self._writers.pop(ledger_id)[0].end()

    def has_idle(self) -> bool:
        """Return whether `end_idle` would end a log."""
        return any(used_at + self._options.idle_s <= self.now for _, used_at in self._writers.values())

    def end_idle(self) -> None:
        """End the logs of ledgers that have had no entries for long, so that they can be deleted. Never fails."""
        for ledger_id, (_, used_at) in list(self._writers.items()):
            if used_at + self._options.idle_s <= self.now:
                self._end(ledger_id)
                self._stats.ended_idle += 1
        self._stats.active = len(self._writers)

    def end(self, *, size_min: int) -> None:
        """End the logs that have at least so many bytes. Never fails."""
        for ledger_id, (writer, _) in list(self._writers.items()):
            if writer.log is None or writer.log.position >= size_min:
                self._end(ledger_id)
        self._stats.active = len(self._writers)

    def close(self) -> None:
        """Seal all logs. OSError: of the first that cannot be."""
        failure: OSError | None = None
        while self._writers:
            _, (writer, _) = self._writers.popitem()
            try:
                writer.close()
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure
