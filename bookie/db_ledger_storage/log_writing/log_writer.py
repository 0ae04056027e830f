"""Writing of entry logs, one after another. Blocking. The format is in entry_log_format.py.

A log is written by one call after another, and never after a restart: each start takes a new id. Bytes left by a failed
call are cut off, and that log is not written again. After a failed sync the disk's content is unknown, so the caller
repeats the call, which begins a new log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    MAP_FIELDS_OFFSET,
    MAP_SEAL_OFFSET,
    POSITION_MAX,
    encode_ledgers_map,
    encode_map_fields,
    encode_map_seal,
    pack_location,
)
from bookie.errors import StorageFailedError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.world.doors import File

_WRITE_BYTES: Final = 2 << 20
"""Runs are gathered up to this many bytes for one vectored write..."""
_WRITE_PARTS: Final = 1000
"""...or this many buffers, whichever is reached first."""
ENDED_BYTES_MIN: Final = 1 << 20
"""A log with fewer bytes than this is not ended to free its room."""


class OpenLog:
    """A log that is being written.

    `position` is where the next record goes; `safe` is the end of what earlier calls made durable.
    """

    __slots__ = ("file", "ledgers", "log_id", "position", "safe", "safe_ledgers")

    def __init__(self, log_id: int, file: File) -> None:
        self.log_id = log_id
        self.file = file
        self.position = HEADER_LENGTH
        self.safe = HEADER_LENGTH
        self.ledgers: dict[int, int] = {}
        self.safe_ledgers: dict[int, int] = {}

    def seal(self) -> None:
        """Write the ledgers map and record it in the header; durable on return.

        The map is durable before the header names it, so a map that does not match its header is damage, and not what
        a power cut left.
        """
        ledgers_map = encode_ledgers_map(self.ledgers)
        fields = encode_map_fields(self.position, len(self.ledgers))
        self.file.pwrite(ledgers_map, self.position)
        self.file.sync()
        self.file.pwrite(encode_map_seal(fields, ledgers_map), MAP_SEAL_OFFSET)
        self.file.pwrite(fields, MAP_FIELDS_OFFSET)
        self.file.sync()


class LogWriter:
    """Writes logs, one after another.

    `begin` creates the next log; `sealed` is called with a log that has its map, `abandoned` with one that never gets
    one, and `synced` after each sync, with the end of what is synced. All but `begin` must not raise.
    """

    def __init__(
        self,
        *,
        begin: Callable[[], OpenLog],
        sealed: Callable[[OpenLog], None],
        abandoned: Callable[[OpenLog], None],
        synced: Callable[[OpenLog, int], None],
        size_max: int,
        sync_every: int,
    ) -> None:
        self._begin = begin
        self._sealed = sealed
        self._abandoned = abandoned
        self._synced = synced
        self._size_max = size_max
        self._sync_every = sync_every
        self.past_cache = False
        """True to let what is written bypass the page cache, because it will hardly be read soon."""
        self._unsynced = 0
        """Bytes written since the last sync, by this call and by earlier ones."""
        self.log: OpenLog | None = None

    @property
    def log_id(self) -> int:
        """Id of the log that is being written, -1 if there is none."""
        return -1 if self.log is None else self.log.log_id

    def has_room(self, size: int) -> bool:
        """Return whether the present log takes so many bytes more."""
        log = self.log
        return log is not None and (log.position + size <= self._size_max or log.position == HEADER_LENGTH)

    def append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        """Write runs in order; all durable on return. Return for each run the location of its first size field.

        OSError: none of them counts; the same call may be tried again.
        """
        try:
            placed = self._append(runs)
            if self.log is not None:
                self._sync(self.log)
        except (OSError, StorageFailedError):
            self.abandon()
            raise
        if self.log is not None:
            self.log.safe = self.log.position
            self.log.safe_ledgers = dict(self.log.ledgers)
        return placed

    def write(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        """As `append`, but nothing is durable before `sync`. OSError: what was not synced is lost."""
        try:
            placed = self._append(runs)
            if self.log is not None and self._unsynced >= self._sync_every:
                self._sync(self.log)  # so that `sync` has little left to do: syncs of the journal wait behind it
            return placed
        except (OSError, StorageFailedError):
            self.abandon()
            raise

    def sync_only(self) -> None:
        """Make everything written durable, but let `abandon` cut it off all the same, before `settle`. OSError."""
        if self.log is not None and self.log.safe < self.log.position:
            self._sync(self.log)

    def settle(self) -> None:
        """Keep what was written and synced."""
        if self.log is not None:
            self.log.safe = self.log.position
            self.log.safe_ledgers = dict(self.log.ledgers)

    def sync(self) -> None:
        """Make everything written durable. OSError: what was not synced is lost."""
        log = self.log
        if log is not None and log.safe < log.position:
            try:
                self._sync(log)
            except OSError:
                self.abandon()
                raise
            log.safe = log.position
            log.safe_ledgers = dict(log.ledgers)

    def _append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        placed: list[tuple[Run, int]] = []
        log = self.log
        parts: list[Buffer] = []
        gathered = 0
        for run in runs:
            size = run.size
            if log is None or (
                log.position + gathered + size > self._size_max and log.position + gathered > HEADER_LENGTH
            ):
                if log is not None:
                    self._write(log, parts)
                    parts, gathered = [], 0
                    self._seal(log)
                log = self.begin()
            position = log.position + gathered
            if position + size > POSITION_MAX:
                raise StorageFailedError(f"a run of {size} bytes does not fit into an entry log")
            placed.append((run, pack_location(log.log_id, position)))
            log.ledgers[run.ledger_id] = log.ledgers.get(run.ledger_id, 0) + size
            parts.extend(run.parts)
            gathered += size
            if gathered >= _WRITE_BYTES or len(parts) >= _WRITE_PARTS:
                self._write(log, parts)
                parts, gathered = [], 0
                if self._unsynced >= self._sync_every:
                    self._sync(log)
        if log is not None:
            self._write(log, parts)
        return placed

    def begin(self) -> OpenLog:
        """Begin the next log."""
        self.log = self._begin()
        self._unsynced = 0
        return self.log

    def _write(self, log: OpenLog, parts: list[Buffer]) -> None:
        if parts:
            write = log.file.pwritev_past_cache if self.past_cache else log.file.pwritev
            written = write(parts, log.position)
            log.position += written
            self._unsynced += written

    def _sync(self, log: OpenLog) -> None:
        log.file.sync()
        self._unsynced = 0
        self._synced(log, log.position)

    def _seal(self, log: OpenLog) -> None:
        log.seal()
        self._synced(log, log.file.size())
        log.file.close()
        self._sealed(log)
        self.log = None

    def end(self, *, size_min: int = 0) -> None:
        """Seal the present log if it has at least this many bytes, so that it can be deleted.

        Never fails: if its map finds no room it has none.
        """
        log = self.log
        if log is not None and log.position >= size_min:
            try:
                self._seal(log)
            except OSError:
                self.abandon()

    def finish(self) -> None:
        """Seal the present log. OSError: it is abandoned."""
        assert self.log is not None, "no log is being written"
        try:
            self._seal(self.log)
        except OSError:
            self.abandon()
            raise

    def close(self) -> None:
        """Seal the present log, and close its file."""
        log, self.log = self.log, None
        if log is not None:
            try:
                log.seal()
            finally:
                log.file.close()

    def abandon(self) -> None:
        """Abandon the present log: cut off what a failed call wrote, leave it without a map, never write it again."""
        log, self.log = self.log, None
        if log is None:
            return
        with suppress(OSError):
            log.file.truncate(log.safe)
        log.file.close()
        # If the cut fails: no index row points there, and the entries are in the journal or in their old log.
        self._abandoned(log)
