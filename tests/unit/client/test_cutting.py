"""Large messages are cut into pieces that readers put together, and all of whose entries fit."""

from __future__ import annotations

import os

import pytest

from quire.client.chunked.cutting import chunked
from quire.client.deliveries import Deliveries
from quire.client.packing import pack
from quire.client.unpacking import Messages, Opener
from quire.wire.pulsar.metadata import read_metadata

LIMIT = 1000


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("size", [LIMIT - 300, LIMIT, 10 * LIMIT + 7])
def test_a_message_in_pieces_is_the_message_and_every_piece_fits(size: int, compression: str) -> None:
    value = os.urandom(size)
    (message,) = pack(
        [value], [b"k"], [[("p", "1")]], [5], compression=compression, schema_version=b"\3", message_size_max=1 << 30
    )
    entries = [
        piece.encode("p" * 90, number, 1) for number, piece in enumerate(chunked(message, LIMIT, "0123456789abcdef"))
    ]
    # (magic, checksum and size of the metadata are not counted)
    assert max(map(len, entries)) - 10 <= LIMIT
    assert (len(entries) == 1) == (size == LIMIT - 300)
    assert [read_metadata(entry).chunk_id for entry in entries] == list(range(len(entries)))
    found = Messages()
    Opener().open(Deliveries([1] * len(entries), list(range(len(entries))), entries), found)
    assert (found.values, found.keys, found.properties, found.event_ms) == ([value], [b"k"], [[("p", "1")]], [5])
    assert found.entry_ids == [len(entries) - 1]


def test_what_cannot_be_cut_is_refused() -> None:
    (batch,) = pack([b"a" * 600, b"b" * 600])
    (wide,) = pack([b"v" * 500], properties=[[("p", "x" * 900)]])
    for message, why in ((batch, "a batch"), (wide, "leave no room")):
        with pytest.raises(ValueError, match=why):
            chunked(message, LIMIT, "u")
