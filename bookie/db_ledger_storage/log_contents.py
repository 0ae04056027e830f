"""Contents of an entry log: from its ledgers map, or from all of its records if it has none. Blocking.

A sealed log carries a checksum of its ledgers map, so that the map proves what the log holds. A log that a crash left
without a map has notes of its ledgers: log_ledgers.py. Of any other log, the original's or of an earlier version, only
the location index knows for sure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    SIZE_LENGTH,
    Scan,
    decode_header,
    decode_ledgers_map,
    has_map_seal,
    log_name,
)
from bookie.errors import StorageDamagedError
from quire.world.doors import Disk

_KEPT_LEDGERS_MAX: Final = 1 << 17
"""Ledgers whose bytes in logs are kept in memory; 100 bytes each."""
_SCAN_STEP: Final = 2000
"""Records of such a log read in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetadata:
    """Contents of a log that is no longer written. `ledgers`: ledger id to bytes, size fields included.

    `records`: bytes of its records, the ledgers map excluded; 0 if unknown.

    `proven`: a checksum guards the ledgers map, or the log has notes (log_ledgers.py). A torn log can be read only up
    to the tear, and nothing guards the map of an original's log against a flipped bit. Before such a log is deleted,
    the location index is checked too.
    """

    log_id: int
    size: int
    ledgers: Mapping[int, int]
    records: int = 0
    proven: bool = False


class LogBytes(Protocol):
    """The part of a file that readers of logs use."""

    def pread(self, size: int, offset: int) -> bytes: ...

    def size(self) -> int: ...


class FoundMap(NamedTuple):
    """Result of looking for a ledgers map.

    `ledgers` is None if there is no good map at `offset`; `proven` if its checksum is present and right.
    """

    offset: int
    ledgers: dict[int, int] | None
    proven: bool


def read_ledgers_map(file: LogBytes) -> FoundMap:
    """Return the ledgers map of a log, if it has a good one."""
    with suppress(StorageDamagedError):
        head = file.pread(HEADER_LENGTH, 0)
        header = decode_header(head)
        size = file.size()
        if header.has_map and HEADER_LENGTH <= header.map_offset < size:
            data = file.pread(size - header.map_offset, header.map_offset)
            ledgers = decode_ledgers_map(data, header.ledgers)
            return FoundMap(header.map_offset, ledgers, has_map_seal(head, data))
    return FoundMap(0, None, False)


class LogContents:
    """Finds out what logs of one folder hold, and keeps the last results.

    `noted` returns the noted ledgers of a log: log_ledgers.py.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._kept: dict[int, LogMetadata] = {}
        self.noted: Callable[[int], dict[int, int] | None] = lambda log_id: None

    def metadata(self, log_id: int) -> LogMetadata:
        """Return the contents of a log that is no longer written. StorageDamagedError if it is missing, OSError."""
        return next(found for found in self.read(log_id) if found is not None)

    def read(self, log_id: int) -> Generator[LogMetadata | None, None, None]:
        """As `metadata`, from the ledgers map or by scanning the log, in steps of a few milliseconds.

        Yield None after each step and the result at the end. The table of open files is not changed: it belongs to
        entry reads.
        """
        known = self._kept.get(log_id)
        if known is not None:
            yield known
            return
        try:
            file = self._disk.open(f"{self._directory}/{log_name(log_id)}", writable=False)
        except FileNotFoundError as error:
            raise StorageDamagedError(f"entry log {log_name(log_id)} is missing") from error
        with closing(file):
            size = file.size()
            found = read_ledgers_map(file)
            known = None
            noted = None if found.proven else self.noted(log_id)
            if noted is not None:
                known = LogMetadata(log_id=log_id, size=size, ledgers=noted, records=size - HEADER_LENGTH, proven=True)
            elif found.ledgers is not None:
                known = LogMetadata(
                    log_id=log_id,
                    size=size,
                    ledgers=found.ledgers,
                    records=found.offset - HEADER_LENGTH,
                    proven=found.proven,
                )
            if known is not None:
                yield self.remember(known)
                return
            # A log without a map is not empty: it was being written when its bookie died.
            ledgers: dict[int, int] = {}
            scan = iter(Scan(file.pread, size))
            while step := list(islice(scan, _SCAN_STEP)):
                for entry in step:
                    ledgers[entry.ledger_id] = ledgers.get(entry.ledger_id, 0) + SIZE_LENGTH + entry.size
                yield None
        yield self.remember(LogMetadata(log_id=log_id, size=size, ledgers=ledgers, records=size - HEADER_LENGTH))

    def remember(self, metadata: LogMetadata) -> LogMetadata:
        """Keep the contents of a log; forget the oldest ones beyond the bound."""
        kept = self._kept
        kept.pop(metadata.log_id, None)
        kept[metadata.log_id] = metadata
        ledgers = sum([len(each.ledgers) for each in kept.values()])
        while ledgers > _KEPT_LEDGERS_MAX and len(kept) > 1:
            ledgers -= len(kept.pop(next(iter(kept))).ledgers)
        return metadata

    def forget(self, log_id: int) -> None:
        """The log is deleted."""
        self._kept.pop(log_id, None)
