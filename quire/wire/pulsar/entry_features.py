"""Features of entries, as bits, that forbid storing them or delivering them unchanged (pure).

Protobuf needs 1.4 us to read one MessageMetadata, which is too slow for every message. But the metadata of a producer's
messages differ in a few numbers only. So the metadata of one entry is remembered as a pattern in which these numbers
may vary without changing size. The next entry is compared with the pattern for its metadata's size (0.4 us); a run of
entries of one size with the pattern repeated (0.23 us for each entry).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from types import MappingProxyType
from typing import Any, Final

from crc32c import crc32c
from google.protobuf.message import DecodeError

from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.frames import BROKER_ENTRY_MAGIC, MAGIC
from quire.wire.pulsar.metadata import Buffer, metadata_span
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata

BATCH = 1
"""The payload is a batch."""
CHUNK = 2
"""The entry is a part of a chunked message."""
DELAYED = 4
"""The message has deliver_at_time."""
MARKER = 8
"""The entry was written by a server for servers."""
TRANSACTION = 16
"""The message belongs to a transaction."""
BROKER_METADATA = 32
"""The entry begins with metadata that Pulsar's brokers may add (0x0e02)."""
UNREADABLE = 64
"""The metadata cannot be read, or a required field is missing, at which an official client closes its connection.

Or the checksum is wrong.
"""

_ALIKE = BATCH | CHUNK
"""Features of entries that a pattern may match."""
PUBLISHED_ALIKE = _ALIKE | DELAYED
"""The same for entries that are published: `union` then may say DELAYED of entries that are not."""
_LEARN_AFTER = 16
"""Entries of one metadata size without a pattern after which one is built: that costs as much as reading a hundred
entries.
"""
_LEARN_AFTER_MAX = 4096
_RUN_MIN = 8
"""Entries from which on a run is compared as a whole."""
_HEAD = Struct("!HII")
_SIZE = Struct("!I")
_find_tag = re.compile(b"\x58|[\x98\xa0\xb0\xb8\xd2]\x01").search
"""Search for the tags of the features' fields: without these bytes, none of the fields exists."""
_FREE_NUMBERS = frozenset((2, 3, 9, 11, 12, 19, 24))
"""sequence_id, publish_time, uncompressed_size, num_messages_in_batch, event_time, deliver_at_time,
highest_sequence_id."""
_FREE_TEXTS = frozenset((6, 18))
"""partition_key, ordering_key: any bytes of that length."""

_Match = Callable[[Buffer, int], Any]
_NONE: Final[Mapping[int, Any]] = MappingProxyType({})
"""Patterns of all producers that have published little: there are thousands, and an empty dict each is memory."""


def _never(entry: Buffer, at: int) -> None:
    return None


def features_of(entry: Buffer, *, check: bool = False) -> int:
    """Return the features of one entry. `check`: also check its crc32c, if it has one."""
    found = 0
    try:
        start, stop = metadata_span(entry)
        packed = bytes(entry[start:stop])
        metadata = MessageMetadata.FromString(packed)
    except (MalformedMetadataError, DecodeError):
        return UNREADABLE
    if not metadata.IsInitialized():
        return UNREADABLE
    if int.from_bytes(entry[:2], "big") == BROKER_ENTRY_MAGIC:
        found |= BROKER_METADATA
    if check and start >= 10:
        magic, crc, _ = _HEAD.unpack_from(entry, start - 10)
        if magic == MAGIC and crc32c(entry[start - 4 :]) != crc:
            return UNREADABLE
    if not _find_tag(packed):
        return found
    has = metadata.HasField
    if has("num_messages_in_batch"):
        found |= BATCH
    if has("uuid"):
        found |= CHUNK
    if has("deliver_at_time"):
        found |= DELAYED
    if has("marker_type"):
        found |= MARKER
    if has("txnid_most_bits") or has("txnid_least_bits"):
        found |= TRANSACTION
    return found


def without_broker_metadata(entry: Buffer) -> Buffer:
    """Return the entry as its producer sent it."""
    view = memoryview(entry)
    if len(view) >= 6 and int.from_bytes(view[:2], "big") == BROKER_ENTRY_MAGIC:
        return view[6 + _SIZE.unpack_from(view, 2)[0] :]
    return entry


class EntryFeatures:
    """Finder of the features of runs of entries that are mostly alike."""

    __slots__ = ("_alike", "_may_match", "_patience", "_patterns", "_runs", "_unknown")

    def __init__(self, may_match: int = _ALIKE) -> None:
        """Take the features of entries that a pattern may match, which `unusual` does not see then."""
        self._may_match = may_match
        self._patterns: Mapping[int, _Match] = _NONE
        """Patterns by the lowest byte of the metadata's size."""
        self._runs: Mapping[int, _RunPattern] | None = _NONE
        """Patterns of runs, by the same byte. None after a run that did not match: this producer's entries vary."""
        self._alike = 0
        """Features of entries that some pattern matches."""
        self._unknown = 0
        """Entries without a matching pattern since a pattern was last built."""
        self._patience = _LEARN_AFTER

    def union(self, entries: Sequence[Buffer]) -> int:
        """Return the features of all `entries` together. Checksums are not checked.

        Those that patterns may match may be included if only earlier entries had them.
        """
        if len(entries) >= _RUN_MIN and self._is_usual_run(entries):
            return self._alike
        get = self._patterns.get
        try:
            others = [entry for entry in entries if not get(entry[9], _never)(entry, 6)]
        except IndexError:
            others = list(entries)
        found = self._alike if len(others) < len(entries) else 0
        if others:
            for entry in others:
                found |= features_of(entry)
            self._learn(others, found)
        return found

    def unusual(self, entries: Sequence[Buffer]) -> list[tuple[int, int]]:
        """Return (index, features) of the entries that have more than BATCH and CHUNK; UNREADABLE if the checksum is
        wrong.
        """
        get = self._patterns.get
        found: list[tuple[int, int]] = []
        others: list[Buffer] = []
        for index, entry in enumerate(entries):
            if len(entry) >= 10 and get(entry[9], _never)(entry, 6):
                magic, crc, _ = _HEAD.unpack_from(entry)
                if magic == MAGIC and crc32c(entry[6:]) == crc:
                    continue
            features = features_of(entry, check=True)
            others.append(entry)
            if features & ~_ALIKE:
                found.append((index, features))
        if others:
            self._learn(others, 0)
        return found

    def _is_usual_run(self, entries: Sequence[Buffer]) -> bool:
        """Return whether all `entries` are of one metadata size and match its pattern."""
        runs, first, last = self._runs, entries[0], entries[-1]
        if runs is None or len(first) < 10 or len(last) < 10 or first[9] != last[9]:
            return False
        run = runs.get(first[9])
        if run is None:
            return False
        if not run.matches(entries):
            self._runs = None
            return False
        return True

    def _learn(self, others: Sequence[Buffer], features: int) -> None:
        self._unknown += len(others)
        if self._unknown < self._patience:
            return
        entry = others[-1]
        if len(entry) < 10 or features_of(entry) & ~self._may_match:
            return
        self._unknown = 0
        key = entry[9]
        if key in self._patterns:  # the pattern did not match this entry, so entries vary more than patterns allow
            self._patience = min(2 * self._patience, _LEARN_AFTER_MAX)
        self._alike |= features_of(entry)
        pattern = _pattern(entry)
        self._patterns = {**self._patterns, key: re.compile(pattern).match}
        if self._runs is not None:
            self._runs = {**self._runs, key: _RunPattern(pattern, metadata_span(entry)[1])}


class _RunPattern:
    """A pattern repeated: one match for a whole run."""

    __slots__ = ("_cut", "_match", "_pattern", "_size")

    def __init__(self, pattern: bytes, stop: int) -> None:
        """`stop`: where metadata that match the pattern end in an entry."""
        self._pattern = pattern
        self._match: Callable[[bytes], Any] | None = None
        self._size = stop - 6
        self._cut = itemgetter(slice(6, stop))

    def matches(self, entries: Sequence[Buffer]) -> bool:
        """Return whether the pattern matches every entry."""
        match = self._match
        if match is None:  # compiled for the first run: not all producers send any
            match = self._match = re.compile(b"(?:%b)*+" % self._pattern).fullmatch
        packed = b"".join(map(self._cut, entries))
        # With an entry that is too short, the next one's metadata would be compared from a wrong byte on.
        return len(packed) == self._size * len(entries) and match(packed) is not None


def _pattern(entry: Buffer) -> bytes:
    """Return a pattern that matches, at offset 6, metadata that differ from that of `entry` only in free numbers and
    texts of the same size.
    """
    start, stop = metadata_span(entry)
    metadata = bytes(entry[start:stop])
    parts = [re.escape(_SIZE.pack(len(metadata)))]
    at = 0
    while at < len(metadata):
        begin = at
        tag, at = _varint(metadata, at)
        number, kind = tag >> 3, tag & 7
        head = metadata[begin:at]
        value_at = at
        if kind == 0:
            _, at = _varint(metadata, at)
            if number in _FREE_NUMBERS:
                parts.append(re.escape(head) + b"[\x80-\xff]{%d}[\x00-\x7f]" % (at - value_at - 1))
                continue
        elif kind == 2:
            size, value_at = _varint(metadata, at)
            at = value_at + size
            if number in _FREE_TEXTS:
                parts.append(re.escape(metadata[begin:value_at]) + b"(?s:.{%d})" % size)
                continue
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:  # a group of an unknown field
            at = len(metadata)
        parts.append(re.escape(metadata[begin:at]))
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
