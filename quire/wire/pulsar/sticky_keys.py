"""Keys of runs of entries, by which Key_Shared chooses the consumer.

Protobuf needs 2.5 us to read the metadata of one entry and its key, as much as the rest of a delivery. Clients write
the fields in the order of their numbers, so the key is found behind the name of the producer, two numbers and the
properties, in 0.8 us. Metadata of another form are read by protobuf: the answer is the same.

    0x0e01 crc32c(4) metadataSize(4)  0a LL name  10 sequence id  18 publish time  [22 LL property]*  32 LL key  others
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import Buffer, sticky_key

_PROPERTY = 0x22
_KEY = 0x32
_find_other_key = re.compile(rb"\x32|[\x88\x92]\x01").search
"""Search for the tags of a second partition_key, of partition_key_b64_encoded and of ordering_key."""


@lru_cache(maxsize=128)
def _head(name_size: int) -> Callable[[Buffer], Any]:
    """Return a match of what is before the properties, for a producer's name of that many bytes, below 128."""
    number = rb"[\x80-\xff]*+[\x00-\x7f]"
    name = rb"\x0a%b(?s:.{%d})" % (re.escape(bytes((name_size,))), name_size)
    return re.compile(rb"\x0e\x01(?s:.{4})\x00\x00(?s:..)%b\x10%b\x18%b" % (name, number, number)).match


def sticky_keys(entries: Iterable[Buffer]) -> list[bytes]:
    """Return the `sticky_key` of each entry; b"" for one whose metadata cannot be read."""
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
                if tag == _KEY and size < 0x80:
                    at += 2
                    end, stop = at + size, 10 + (entry[8] << 8 | entry[9])
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
