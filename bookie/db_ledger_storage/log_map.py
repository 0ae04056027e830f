"""Usage of entry logs: the ledgers that each one holds and that live, their bytes, and their part of the log. Blocking.

A log's figures are worked out when it is first seen, and again after ledgers were forgotten. They are kept in memory, a
few numbers a log; the ledgers themselves, if asked for, in an ordered map `metadata-cache`, so that a start need not
read each log:

    key    int64 log id
    value  int16 0, int64 log id, int64 bytes of records, int64 bytes remaining, int64 n,
           n * (int64 ledger id, int64 bytes)
           ours then has "QUIREMAP" and the crc32c of all before, if the ledgers are proven

Source: BookKeeper's PersistentEntryLogMetadataMap and EntryLogMetadata, which read no further than the ledgers.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from struct import Struct
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from bookie.db_ledger_storage.log_contents import LogContents, LogMetadata
from quire.service.log import get_logger
from quire.world.doors import KeyValue

_log = get_logger(__name__)

FOLDER: Final = "metadata-cache"
_HEAD: Final = Struct("!hqqqq")
_PAIR: Final = Struct("!qq")
_SEAL: Final = Struct("!8sI")
_SEAL_MAGIC: Final = b"QUIREMAP"
_LEDGERS_PER_STEP: Final = 5000
"""Ledgers of a log looked up in one step; about a millisecond..."""
_SEEKS_PER_STEP: Final = 50
"""...or as many as the location index is asked about, whichever is reached first."""


class LivingLedgers(Protocol):
    """The ledgers that may have rows."""

    asked: int
    """Times that `lives` asked the location index, which takes a seek."""

    def lives(self, ledger_id: int) -> bool:
        """Return whether the ledger may have rows. Blocking."""


class LogUsage(NamedTuple):
    """Usage of one log. `total` and `remaining`: bytes of records, of ledgers that exist for the latter.

    `proven`: as of LogMetadata. `epoch`: of the storage's ledgers when this was worked out.
    """

    log_id: int
    total: int
    remaining: int
    ledgers: int
    proven: bool
    epoch: int

    @property
    def share(self) -> float:
        """The needed part of the log, from 0.0 to 1.0."""
        return self.remaining / self.total if self.total else 0.0


def encode_row(metadata: LogMetadata) -> bytes:
    """Return the value of a log, as the original has it, and our seal."""
    ledgers = metadata.ledgers
    remaining = sum(ledgers.values())
    row = b"".join(
        [
            _HEAD.pack(0, metadata.log_id, max(metadata.records, remaining), remaining, len(ledgers)),
            *[_PAIR.pack(*pair) for pair in ledgers.items()],
        ]
    )
    return row + _SEAL.pack(_SEAL_MAGIC, crc32c(row)) if metadata.proven else row


def decode_row(log_id: int, value: bytes) -> LogMetadata | None:
    """Return what a value says of a log; None if it is damaged."""
    if len(value) >= _HEAD.size:
        version, found, total, _, count = _HEAD.unpack_from(value)
        end = _HEAD.size + _PAIR.size * count
        if version == 0 and found == log_id and count >= 0 and end <= len(value):
            ledgers = dict(_PAIR.iter_unpack(value[_HEAD.size : end]))
            proven = value[end:] == _SEAL.pack(_SEAL_MAGIC, crc32c(value[:end]))
            return LogMetadata(log_id=log_id, size=total, ledgers=ledgers, records=total, proven=proven)
    return None


class LogMap:
    """Usage of the logs of one folder. `rows`: the ordered map, if there is one."""

    def __init__(self, contents: LogContents, rows: KeyValue | None) -> None:
        self._contents = contents
        self._rows = rows
        self._usages: dict[int, LogUsage] = {}
        self.epoch = 0
        """Raised when ledgers are forgotten and their rows are gone."""

    def start(self, existing: Collection[int]) -> None:
        """Drop the rows of logs that are gone."""
        if self._rows is None:
            return
        batch = self._rows.batch()
        for key, _ in self._rows.scan(b"", b"\x80"):
            if int.from_bytes(key, "big") not in existing:
                batch.delete(key)
        self._rows.write(batch, sync=False)

    def usages(self) -> list[LogUsage]:
        """Return what is known of logs, by log id."""
        return [self._usages[log_id] for log_id in sorted(self._usages)]

    def usage(self, log_id: int) -> LogUsage | None:
        """Return the usage of a log if it is known and up to date."""
        usage = self._usages.get(log_id)
        return usage if usage is not None and usage.epoch == self.epoch else None

    def _stored(self, log_id: int) -> LogMetadata | None:
        if self._rows is None:
            return None
        value = self._rows.get(log_id.to_bytes(8, "big"))
        if value is None:
            return None
        found = decode_row(log_id, value)
        if found is None:
            _log.warning("entry log metadata is damaged, reading the log", entry_log=f"{log_id:x}")
        # The original's rows may come from a log that was read up to a tear.
        return found if found is not None and found.proven else None

    def read(self, log_id: int, living: LivingLedgers) -> Generator[LogMetadata | None, None, None]:
        """Find out what a log holds, in steps: None after each, and the result at the end. Only ledgers that live.

        StorageDamagedError, OSError.
        """
        epoch = self.epoch
        metadata: LogMetadata | None = self._stored(log_id)
        stored = metadata
        if metadata is None:
            for metadata in self._contents.read(log_id):
                if metadata is None:
                    yield None
        assert metadata is not None
        lives, asked = living.lives, living.asked
        ledgers: dict[int, int] = {}
        for count, (ledger_id, size) in enumerate(metadata.ledgers.items(), 1):
            if lives(ledger_id):
                ledgers[ledger_id] = size
            if count % _LEDGERS_PER_STEP == 0 or living.asked - asked >= _SEEKS_PER_STEP:
                yield None
                asked = living.asked
        total = metadata.records or sum(metadata.ledgers.values())
        live = LogMetadata(log_id=log_id, size=metadata.size, ledgers=ledgers, records=total, proven=metadata.proven)
        if self._rows is not None and (stored is None or len(ledgers) < len(metadata.ledgers)):
            batch = self._rows.batch()
            batch.put(log_id.to_bytes(8, "big"), encode_row(live))
            self._rows.write(batch, sync=False)
        remaining = sum(ledgers.values())
        self._usages[log_id] = LogUsage(log_id, max(total, remaining), remaining, len(ledgers), live.proven, epoch)
        yield live

    def forget(self, log_id: int) -> None:
        """The log is deleted."""
        self._usages.pop(log_id, None)
        if self._rows is not None:
            batch = self._rows.batch()
            batch.delete(log_id.to_bytes(8, "big"))
            self._rows.write(batch, sync=False)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
