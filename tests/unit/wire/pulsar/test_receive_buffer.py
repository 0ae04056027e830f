from __future__ import annotations

import random

import pytest

from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.frames import FRAME_SIZE_MAX
from quire.wire.pulsar.receive_buffer import CHUNK_SIZE, GROWTH, IDLE_SIZE, KEPT_MIN, ReceiveBuffer
from quire.wire.pulsar.splitter import OTHERS_MAX, Other, SendRun
from tests.support.pulsar_frames import command, entry, frame, send


def feed(buffer: ReceiveBuffer, data: bytes, sizes: list[int] | None = None) -> list[tuple[int, memoryview, bytes]]:
    """Feed `data` in pieces of the given sizes, then as much as fits.

    Return for each SEND its sequence id, its payload, and a copy of the payload from before the next receive.
    """
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


def busy(buffer: ReceiveBuffer) -> list[int]:
    """Receive small SENDs as fast as the buffer takes them; return its size before each receive."""
    data = memoryview(b"".join(send(n) for n in range(6000)))
    sizes: list[int] = []
    while data:
        sizes.append(buffer.size)
        space = buffer.space()
        size = min(len(space), len(data))
        space[:size] = data[:size]
        data = data[size:]
        buffer.received(size)
    return sizes


def test_a_large_frame_takes_memory_as_its_bytes_arrive_and_ends_in_a_buffer_of_its_size() -> None:
    stored = entry(b"z" * 4_000_000)
    data = send(0, 1, stored)
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    assert feed(buffer, data[:100]) == []
    assert (buffer.size, len(buffer.space())) == (IDLE_SIZE, IDLE_SIZE - 100), "what is only announced takes no memory"
    at = 100
    while at < len(data) - 1:
        before = buffer.buffered
        size = min(len(buffer.space()), len(data) - 1 - at)
        assert feed(buffer, data[at : at + size]) == []
        at += size
        assert buffer.size <= max(CHUNK_SIZE, GROWTH * (before + size))
    assert buffer.size == len(data)
    ((_, payload, _),) = feed(buffer, data[-1:])
    assert bytes(payload) == stored
    assert len(buffer.space()) == CHUNK_SIZE


def test_a_connection_begins_with_a_small_buffer_and_a_busy_one_has_the_large_one_after_two_receives() -> None:
    assert busy(ReceiveBuffer(FRAME_SIZE_MAX)) == [IDLE_SIZE, 8 * IDLE_SIZE, CHUNK_SIZE]


def test_small_traffic_that_never_fills_the_buffer_leaves_it_small() -> None:
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    for n in range(1000):
        feed(buffer, send(n))
    assert buffer.size == IDLE_SIZE


def test_a_buffer_at_rest_is_small_again_and_keeps_the_frame_that_is_half_there() -> None:
    stored = entry(b"z" * 9000)
    data = send(7, 1, stored)
    for held in (0, 3, 100, 8000):
        buffer = ReceiveBuffer(FRAME_SIZE_MAX)
        busy(buffer)
        assert buffer.size == CHUNK_SIZE
        feed(buffer, data[:held])
        buffer.rest()
        assert buffer.size == max(IDLE_SIZE, held + 1)
        found = feed(buffer, data[held:])
        assert [bytes(payload) for _, payload, _ in found] == [stored]


def test_a_chunk_of_many_commands_comes_out_in_parts_of_bounded_length() -> None:
    ping = frame(command("PING", "ping"))
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    busy(buffer)
    count = CHUNK_SIZE // len(ping)
    data = (ping * (count - 1)) + ping[:5]
    buffer.space()[: len(data)] = data
    found = buffer.received(len(data))
    parts = [len(found)]
    while buffer.more:
        parts.append(len(buffer.received(0)))
    assert all(part == OTHERS_MAX for part in parts[:-1])
    assert sum(parts) == count - 1
    assert buffer.buffered == 5
    buffer.space()[: len(ping) - 5] = ping[5:]
    assert [type(item) for item in buffer.received(len(ping) - 5)] == [Other]
    assert not buffer.more


def test_sends_of_many_producers_in_turn_come_out_in_parts_too_and_none_is_lost() -> None:
    data = b"".join(send(n, n % 3, entry(b"p", sequence_id=n)) for n in range(6000))
    buffer = ReceiveBuffer(FRAME_SIZE_MAX)
    found: list[int] = []
    at = 0
    while at < len(data):
        space = buffer.space()
        size = min(len(space), len(data) - at)
        space[:size] = data[at : at + size]
        at += size
        items = buffer.received(size)
        while True:
            assert len(items) <= OTHERS_MAX
            for item in items:
                assert isinstance(item, SendRun)
                found += item.sequence_ids
            if not buffer.more:
                break
            items = buffer.received(0)
    assert found == list(range(6000))


def test_nothing_is_allocated_for_a_frame_above_the_limit() -> None:
    buffer = ReceiveBuffer(1_000_000)
    space = buffer.space()
    space[:4] = (1_000_000 - 3).to_bytes(4, "big")
    with pytest.raises(FrameError):
        buffer.received(4)
    assert buffer.size == IDLE_SIZE


def test_a_frame_of_exactly_the_limit_is_read() -> None:
    data = send(0, 1, entry(b"z" * 400_000))
    ((sequence_id, _, _),) = feed(ReceiveBuffer(len(data)), data, [5, 70_000])
    assert sequence_id == 0
