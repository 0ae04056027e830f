from __future__ import annotations

import pytest

from quire.wire.pulsar.sends import SendEncoder
from tests.support.pulsar_frames import entry, send


@pytest.mark.parametrize("producer_id", [0, 127, 128, (1 << 64) - 1])
@pytest.mark.parametrize("first", [0, 126, 16_383, (1 << 63) - 2])
def test_send_frames_are_byte_for_byte_what_protobuf_writes(producer_id: int, first: int) -> None:
    entries = [entry(b"x" * n) for n in (0, 5, 300)]
    counts = [1, 128, 20_000]
    parts = SendEncoder(producer_id).frames(first, counts, entries)
    expected = [
        send(first + n, producer_id, stored, num_messages=count)
        for n, (stored, count) in enumerate(zip(entries, counts, strict=True))
    ]
    assert b"".join(parts) == b"".join(expected)
    assert parts[1::2] == entries
