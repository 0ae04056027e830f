"""Keys of runs of entries, by which Key_Shared chooses the consumer.

Protobuf needs 1.6 us to read the metadata of one entry and its key. Clients write the fields in the order of their
numbers, so the key is found behind the name of the producer, two numbers and the properties, in 0.7 us. The keys of a
run of entries whose fields have the same sizes are cut out together, in 0.3 us each, and those of a run with keys of
several lengths in 0.5 us. Metadata of another form are read by protobuf: the answer is the same.

    0x0e01 crc32c(4) metadataSize(4)  0a LL name  10 sequence id  18 publish time  [22 LL property]*  32 LL key  others
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import Buffer, sticky_key

RUN_MIN = 8
"""Entries from which on the keys of a run are cut out together."""
SIZES_MIN = 64
"""Entries from which on those of a run that is not alike are sorted by the sizes of their metadata first."""
_PROPERTY = 0x22
_KEY = 0x32
_find_other_key = re.compile(rb"\x32|[\x88\x92]\x01").search
"""Search for the tags of a second partition_key, of partition_key_b64_encoded and of ordering_key."""
_UNCOMPRESSED_SIZE = re.compile(rb"\x48[\x80-\xff]*[\x00-\x7f]").fullmatch
"""Match of the only field that most clients write behind the key."""


@lru_cache(maxsize=128)
def _head(name_size: int) -> Callable[[Buffer], Any]:
    """Return a match of what is before the properties, for a producer's name of that many bytes, below 128."""
    number = rb"[\x80-\xff]*+[\x00-\x7f]"
    name = rb"\x0a%b(?s:.{%d})" % (re.escape(bytes((name_size,))), name_size)
    return re.compile(rb"\x0e\x01(?s:.{4})\x00\x00(?s:..)%b\x10(%b)\x18(%b)" % (name, number, number)).match


@lru_cache(maxsize=256)
def _run(name: int, sequence: int, time: int, key: int, rest: int) -> tuple[Callable[[bytes], Any], Any]:
    """Return a match of the metadata of a run, one behind the other, and the cut of those of one entry: from their size
    on, where the fields have these sizes. `rest`: of the number behind the key and its tag, 0 without one."""

    def number(size: int) -> bytes:
        return b"[\x80-\xff]{%d}[\x00-\x7f]" % (size - 1)

    size = 6 + name + sequence + time + key + rest
    pattern = b"".join(
        (
            re.escape(size.to_bytes(4, "big") + b"\x0a%c" % name),
            b"(?s:.{%d})\x10%b\x18%b" % (name, number(sequence), number(time)),
            re.escape(b"\x32%c" % key),
            b"(?s:.{%d})" % key,
            b"\x48%b" % number(rest - 1) if rest else b"",
        )
    )
    return re.compile(b"(?:%b)*+" % pattern).match, itemgetter(slice(6, 10 + size))


def sticky_keys(entries: Sequence[Buffer]) -> list[bytes]:
    """Return the `sticky_key` of each entry; b"" for one whose metadata cannot be read."""
    keys = _alike(entries)
    while rest := entries[len(keys) :]:
        if len(rest) < SIZES_MIN:
            return keys + _each(rest)
        found = _alike(rest)
        if 2 * len(found) < len(rest):
            return keys + _by_size(rest)
        keys += found
    return keys


def _by_size(entries: Sequence[Buffer]) -> list[bytes]:
    """Return the keys of entries in which those whose metadata have one size are mostly alike, as with keys of several
    lengths."""
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    try:
        for index, entry in enumerate(entries):
            sizes[entry[9]].append(index)
    except IndexError:  # it ends before its size
        return _each(entries)
    keys = [b""] * len(entries)
    for indexes in sizes.values():
        some = [entries[index] for index in indexes]
        found = _alike(some)
        found += _each(some[len(found) :])
        for index, key in zip(indexes, found, strict=True):
            keys[index] = key
    return keys


def _alike(entries: Sequence[Buffer]) -> list[bytes]:
    """Return the keys of as many of the first entries as have fields of the sizes of those of the first one; none of
    few."""
    if len(entries) < RUN_MIN:
        return []
    first = entries[0]
    if len(first) < 12 or first[11] > 0x7F:
        return []
    found = _head(first[11])(first)
    stop = 10 + (first[8] << 8 | first[9])
    if found is None or found.end() + 2 > min(stop, len(first)) or stop > len(first):
        return []
    begin = found.end() + 2
    size = first[begin - 1]
    rest = stop - begin - size
    if first[begin - 2] != _KEY or size > 0x7F or rest < 0:
        return []
    if rest and not _UNCOMPRESSED_SIZE(first, begin + size, stop):
        return []
    sequence, time = (len(each) for each in found.groups())
    match, cut = _run(first[11], sequence, time, size, rest)
    packed = b"".join(map(cut, entries))
    # With an entry that is too short, the next one's metadata would be compared from a wrong byte on.
    each = stop - 6
    if len(packed) != each * len(entries):
        return []
    return [packed[at : at + size] for at in range(begin - 6, match(packed).end(), each)]


def _each(entries: Iterable[Buffer]) -> list[bytes]:
    """Return the keys of entries that have little in common."""
    keys: list[bytes] = []
    append = keys.append
    name_size, head = -1, None
    for entry in entries:
        try:
            if entry[11] != name_size or head is None:
                name_size = entry[11]
                head = _head(name_size & 0x7F)
            found = head(entry)
            if found is not None:
                at = found.end()
                tag = entry[at]
                while tag == _PROPERTY and entry[at + 1] < 0x80:
                    at += 2 + entry[at + 1]
                    tag = entry[at]
                size = entry[at + 1]
                stop = 10 + (entry[8] << 8 | entry[9])
                if tag == _KEY and size < 0x80 and stop <= len(entry):
                    at += 2
                    end = at + size
                    if end == stop or (end < stop and not _find_other_key(entry, end, stop)):
                        append(bytes(entry[at:end]))
                        continue
        except IndexError:
            pass  # it ends before its key
        try:
            append(sticky_key(entry))
        except PulsarWireError:
            append(b"")
    return keys
