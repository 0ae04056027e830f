"""One closed ledger as one Parquet file: writing, and reading entries again by their ids.

The columns are those of the Spark source (`quire.spark.reading.columns`), without `__messageId`, and

    __kind STRING       see `rows`
    __header BINARY     bytes of the entry before the value
    __stored BINARY     payload as stored, on the first row of an entry that headers and values do not give
    __checksum BIGINT   crc32c of the whole entry, on each of its rows

The schema's metadata have `quire.offload`: {"v":1,"topic":T,"ledger":L,"entries":N,"uid":U}. Entries are in order, and
no row group has a part of one, so the statistics of `__entry` say which row group has an entry. A row group ends at
GROUP_BYTES or GROUP_ROWS, or with the entry that passes them: that bounds the memory of a writer and of a reader.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from quire.offload.errors import OffloadedLedgerError
from quire.offload.rows import Row, joined, rows_of
from quire.offload.sealing import SealedFile, seal
from quire.wire.pulsar.names import TopicName

VERSION: Final = 1
GROUP_BYTES: Final = 8 << 20
"""Bytes of headers, values and stored payloads at which a row group ends."""
GROUP_ROWS: Final = 20_000
ROWS_AT_ONCE: Final = 500
"""Rows that become Python objects in one step: about a millisecond."""
_METADATA: Final = b"quire.offload"
_MICROSECONDS_MAX: Final = (1 << 63) // 1000 - 1
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_OF_SOURCE: Final = {
    "__key": pa.binary(),
    "value": pa.binary(),
    "__topic": pa.string(),
    "__partition": pa.int32(),
    "__ledger": pa.int64(),
    "__entry": pa.int64(),
    "__batch": pa.int32(),
    "__publishTime": _TIMESTAMP,
    "__eventTime": _TIMESTAMP,
    "__properties": pa.map_(pa.string(), pa.string()),
    "__orderingKey": pa.binary(),
    "__schemaVersion": pa.int64(),
}
_REBUILT: Final = ["__entry", "__header", "value", "__stored", "__checksum"]
_OWN: Final = {"__kind": pa.string(), "__header": pa.binary(), "__stored": pa.binary(), "__checksum": pa.int64()}
SCHEMA: Final = pa.schema([*_OF_SOURCE.items(), *_OWN.items()])
_DICTIONARIES: Final = ["__topic", "__partition", "__kind", "__schemaVersion"]
_STATISTICS: Final = ["__ledger", "__entry", "__publishTime", "__eventTime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFile:
    """Identity of a file."""

    topic: str
    """Full name of the topic or partition."""
    ledger_id: int
    entries: int
    uid: str

    def schema(self) -> pa.Schema:
        found = {"v": VERSION, "topic": self.topic, "ledger": self.ledger_id, "entries": self.entries, "uid": self.uid}
        return SCHEMA.with_metadata({_METADATA: json.dumps(found).encode()})


@dataclass(slots=True)
class WrittenLedger:
    """Totals of a file."""

    entries: int = 0
    rows: int = 0
    entry_bytes: int = 0


def write_ledger(target: Any, file: LedgerFile, runs: Iterable[Sequence[bytes]]) -> WrittenLedger:
    """Write the entries of a ledger, from id 0 on, to a binary file open for reading and writing; not made
    durable.

    Raises OffloadedLedgerError: there are not as many entries as the ledger has."""
    written = WrittenLedger()
    with pq.ParquetWriter(
        target,
        file.schema(),
        compression="zstd",
        use_dictionary=_DICTIONARIES,
        write_statistics=_STATISTICS,
        write_page_checksum=True,
    ) as writer:
        group = _Group(file)
        for entries in runs:
            for entry in entries:
                group.add(written.entries, entry)
                written.entries += 1
                written.entry_bytes += len(entry)
                if group.is_full:
                    written.rows += group.flush(writer)
        written.rows += group.flush(writer)
        if written.entries != file.entries:
            raise OffloadedLedgerError(
                f"ledger {file.ledger_id} of {file.topic} has {file.entries} entries, but {written.entries} came"
            )
    seal(target)
    return written


class _Group:
    """Rows of the next row group."""

    def __init__(self, file: LedgerFile) -> None:
        topic = TopicName.parse(file.topic)
        self._topic, self._partition = topic.partitioned.full, topic.partition if topic.partition >= 0 else None
        self._ledger_id = file.ledger_id
        self._schema = file.schema()
        self._rows: list[Row] = []
        self._ids: list[int] = []
        self._checksums: list[int] = []
        self._bytes = 0

    def add(self, entry_id: int, entry: bytes) -> None:
        rows = rows_of(entry)
        self._rows += rows
        self._ids += [entry_id] * len(rows)
        self._checksums += [crc32c(entry)] * len(rows)
        self._bytes += sum(len(row.header) + len(row.value or b"") + len(row.stored or b"") for row in rows)

    @property
    def is_full(self) -> bool:
        return self._bytes >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS

    def flush(self, writer: Any) -> int:
        """Write the row group; return its number of rows."""
        rows, count = self._rows, len(self._rows)
        if not count:
            return 0
        columns: dict[str, Any] = {
            "__key": [row.key for row in rows],
            "value": [row.value for row in rows],
            "__topic": [self._topic] * count,
            "__partition": [self._partition] * count,
            "__ledger": [self._ledger_id] * count,
            "__entry": self._ids,
            "__batch": [row.batch for row in rows],
            "__publishTime": [_microseconds(row.publish_ms) for row in rows],
            "__eventTime": [_microseconds(row.event_ms or None) for row in rows],
            "__properties": [list(dict(row.properties).items()) for row in rows],
            "__orderingKey": [row.ordering_key for row in rows],
            "__schemaVersion": [_version(row.schema_version) for row in rows],
            "__kind": [row.kind for row in rows],
            "__header": [row.header for row in rows],
            "__stored": [row.stored for row in rows],
            "__checksum": self._checksums,
        }
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=count)
        self._rows, self._ids, self._checksums, self._bytes = [], [], [], 0
        return count


def _microseconds(milliseconds: int | None) -> int | None:
    if milliseconds is None or milliseconds > _MICROSECONDS_MAX:
        return None
    return milliseconds * 1000


def _version(version: bytes) -> int | None:
    return int.from_bytes(version[:8], "big", signed=True) if len(version) >= 8 else None


class OffloadedLedger:
    """Entries of one file, by their ids. Blocking; keeps the entries of one row group. Close it."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises OffloadedLedgerError."""
        self._path = path
        self._sealed = SealedFile(path)
        try:
            self._parquet = pq.ParquetFile(self._sealed, page_checksum_verification=True)
            self.file = self._identity()
            self._firsts = self._check_groups()
        except (pa.ArrowException, OSError) as error:
            self._sealed.close()
            raise OffloadedLedgerError(f"{path} cannot be opened: {error}") from None
        except OffloadedLedgerError:
            self._sealed.close()
            raise
        self._kept = -1
        self._entries: Sequence[bytes] = ()

    @classmethod
    def of(cls, path: Path, topic: str, ledger_id: int, *, entries: int, uid: str) -> OffloadedLedger:
        """Open the file of a ledger. Raises OffloadedLedgerError: it is missing, damaged, or of another ledger."""
        found = cls(path)
        if found.file != LedgerFile(topic=topic, ledger_id=ledger_id, entries=entries, uid=uid):
            found.close()
            raise OffloadedLedgerError(f"{path} is of another ledger: {found.file}")
        return found

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._parquet.close()
        self._sealed.close()
        self._kept, self._entries = -1, ()

    @property
    def rows(self) -> int:
        found: int = self._parquet.metadata.num_rows
        return found

    def read(self, first: int, last: int, size_max: int) -> list[bytes]:
        """Return entries from `first` on, up to `last` (inclusive), of one row group: at least one, and not more than
        `size_max` bytes unless that is one. Raises OffloadedLedgerError."""
        if not 0 <= first <= last < self.file.entries:
            raise OffloadedLedgerError(f"{self._path} has {self.file.entries} entries, not {first} to {last}")
        number = bisect_right(self._firsts, first) - 1
        if self._kept != number:
            self._kept, self._entries = -1, ()
            self._entries = self._group(number)
            self._kept = number
        found: list[bytes] = []
        at = first - self._firsts[number]
        for entry in self._entries[at : at + last - first + 1]:
            size_max -= len(entry)
            if found and size_max < 0:
                break
            found.append(entry)
        return found

    def check(self) -> None:
        """Read every entry. Raises OffloadedLedgerError."""
        for number in range(len(self._firsts)):
            self._group(number)

    def _group(self, number: int) -> list[bytes]:
        """Return the entries of a row group, each checked."""
        self._sealed.load(number)
        try:
            table = self._parquet.read_row_group(number, columns=_REBUILT, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise OffloadedLedgerError(f"{self._path}, row group {number}: {error}") from None
        finally:
            self._sealed.unload()
        if missing := [name for name in _REBUILT if name not in table.column_names]:
            raise OffloadedLedgerError(f"{self._path} has no column {missing[0]}: offload the ledger again")
        columns: dict[str, list[Any]] = {name: [] for name in _REBUILT}
        for at in range(0, len(table), ROWS_AT_ONCE):  # pyarrow keeps other threads, such as an event loop, waiting
            for name, values in table.slice(at, ROWS_AT_ONCE).to_pydict().items():
                columns[name] += values
        ids, headers, values = columns["__entry"], columns["__header"], columns["value"]
        found: list[bytes] = []
        start = 0
        for stop in [*(row for row in range(1, len(ids)) if ids[row] != ids[row - 1]), len(ids)]:
            entry = joined(columns["__stored"][start], headers[start:stop], values[start:stop])
            if ids[start] != self._firsts[number] + len(found) or crc32c(entry) != columns["__checksum"][start]:
                raise OffloadedLedgerError(
                    f"{self._path}: entry {ids[start]} is damaged or out of order: offload ledger "
                    f"{self.file.ledger_id} again"
                )
            found.append(entry)
            start = stop
        return found

    def _identity(self) -> LedgerFile:
        try:
            given = json.loads((self._parquet.schema_arrow.metadata or {})[_METADATA])
            if given["v"] != VERSION:
                raise OffloadedLedgerError(f"{self._path} has version {given['v']}, and this reader knows {VERSION}")
            return LedgerFile(
                topic=str(given["topic"]),
                ledger_id=int(given["ledger"]),
                entries=int(given["entries"]),
                uid=str(given["uid"]),
            )
        except (KeyError, TypeError, ValueError):
            raise OffloadedLedgerError(f"{self._path} is not the file of an offloaded ledger") from None

    def _check_groups(self) -> list[int]:
        """Return the first entry of each row group. Raises OffloadedLedgerError: they do not make the ledger."""
        firsts: list[int] = []
        due = 0 if self._parquet.metadata.num_row_groups == self._sealed.groups else -1
        for first, last in self._bounds():
            if first != due or last < first:
                due = -1
                break
            firsts.append(first)
            due = last + 1
        if due != self.file.entries:
            raise OffloadedLedgerError(
                f"{self._path}: its row groups are not the {self.file.entries} entries of ledger {self.file.ledger_id}"
            )
        return firsts

    def _bounds(self) -> Iterator[tuple[int, int]]:
        metadata = self._parquet.metadata
        paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
        column = paths.index("__entry") if "__entry" in paths else -1
        for number in range(metadata.num_row_groups):
            statistics = None if column < 0 else metadata.row_group(number).column(column).statistics
            if statistics is None or not statistics.has_min_max:
                raise OffloadedLedgerError(f"{self._path}: row group {number} has no statistics of __entry")
            yield int(statistics.min), int(statistics.max)
