from __future__ import annotations

import random

import pytest

from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.frames import FRAME_SIZE_MAX
from quire.wire.pulsar.receive_buffer import CHUNK_SIZE, GROWTH, KEPT_MIN, ReceiveBuffer
from quire.wire.pulsar.splitter import SendRun
from tests.unit.wire.pulsar.build import entry, send


def feed(buffer: ReceiveBuffer, data: bytes, sizes: list[int] | None = None) -> list[tuple[int, memoryview, bytes]]:
    """Give `data` in pieces of the given sizes (then as much as fits); per SEND its sequence id, its payload, and a
    copy made before anything more was received."""
    found: list[tuple[int, memoryview, bytes]] = []
    at = 0
    while at < len(data):
        space = buffer.space()
        assert len(space) > 0
        size = min(len(space), len(data) - at, sizes.pop(0) if sizes else len(data))
        space[:size] = data[at : at + size]
        at += size
        for item in buffer.received(size):
            assert isinstance(item, SendRun)
            found += zip(item.sequence_ids, item.payloads, map(bytes, item.payloads), strict=True)
    return found


def test_frames_come_out_whole_whatever_the_pieces() -> None:
    rng = random.Random(3)
    entries = [entry(rng.randbytes(rng.choice([0, 10, 1000, 20_000, 300_000])), sequence_id=n) for n in range(60)]
    data = b"".join(send(n, 1, stored) for n, stored in enumerate(entries))
    for _ in range(8):
        sizes = [rng.choice([1, 3, 7, 100, 5000, 70_000, 1 << 20]) for _ in range(200)]
        buffer = ReceiveBuffer(FRAME_SIZE_MAX)
        found = feed(buffer, data, sizes)
        assert [sequence_id for sequence_id, _, _ in found] == list(range(60))
        assert [copy for _, _, copy in found] == entries
        assert [bytes(view) for _, view, _ in found if len(view) > KEPT_MIN] == [
            e for e in entries if len(e) > KEPT_MIN
        ]
        assert buffer.buffered == 0


def test_large_payloads_stay_as_they_are_while_more_is_received() -> None:
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    entries = [entry(bytes([n]) * (KEPT_MIN + 1), sequence_id=n) for n in range(200)]
    found = feed(buffer, b"".join(send(n, 1, stored) for n, stored in enumerate(entries)))
    assert [bytes(payload) for _, payload, _ in found] == entries


def test_small_payloads_are_received_into_the_same_buffer_again() -> None:
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    before = buffer.space().obj
    for n in range(5):
        feed(buffer, send(n) + b"\x00")
        assert buffer.buffered == 1
        feed(buffer, send(n + 1)[1:])
        assert buffer.space().obj is before


def test_a_large_frame_takes_memory_as_its_bytes_arrive_and_ends_in_a_buffer_of_its_size() -> None:
    stored = entry(b"z" * 4_000_000)
    data = send(0, 1, stored)
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    assert feed(buffer, data[:100]) == []
    assert len(buffer.space()) == CHUNK_SIZE - 100
    assert feed(buffer, data[100 : CHUNK_SIZE - 1]) == []
    assert len(buffer.space()) == 1
    assert feed(buffer, data[CHUNK_SIZE - 1 : CHUNK_SIZE]) == []
    assert len(buffer.space().obj) == GROWTH * CHUNK_SIZE  # type: ignore[arg-type]
    assert feed(buffer, data[CHUNK_SIZE:-1]) == []
    assert len(buffer.space().obj) == len(data)  # type: ignore[arg-type]
    ((_, payload, _),) = feed(buffer, data[-1:])
    assert bytes(payload) == stored
    assert len(buffer.space()) == CHUNK_SIZE


def test_nothing_is_allocated_for_a_frame_above_the_limit() -> None:
    buffer = ReceiveBuffer(1_000_000)
    space = buffer.space()
    space[:4] = (1_000_000 - 3).to_bytes(4, "big")
    with pytest.raises(FrameError):
        buffer.received(4)
    assert len(buffer.space().obj) == CHUNK_SIZE  # type: ignore[arg-type]


def test_a_frame_of_exactly_the_limit_is_read() -> None:
    data = send(0, 1, entry(b"z" * 400_000))
    ((sequence_id, _, _),) = feed(ReceiveBuffer(len(data)), data, [5, 70_000])
    assert sequence_id == 0
