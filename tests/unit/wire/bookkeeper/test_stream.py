"""Whole frames out of a stream, however it is cut."""

from __future__ import annotations

import random
from struct import pack, unpack_from

import pytest

from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.stream import FrameStream
from quire.wire.bookkeeper.v2 import FRAME_MAX
from tests.support.refusals import refuses


def frame(size: int) -> bytes:
    return pack("!i", size) + bytes(i % 251 for i in range(size))


def feed(stream: FrameStream, data: bytes, sizes: list[int]) -> list[bytes]:
    """Receive `data` in pieces of `sizes`, then the rest; return each nonempty output."""
    out: list[bytes] = []
    position = 0
    while position < len(data):
        space = stream.space()
        size = min(len(space), sizes.pop(0) if sizes else len(data), len(data) - position)
        space[:size] = data[position : position + size]
        chunk = stream.received(size)
        if chunk:
            out.append(bytes(chunk))
        position += size
    return out


def test_frames_come_out_whole_at_every_cut() -> None:
    data = frame(4) + frame(10) + frame(100)
    for cut in range(1, len(data)):
        chunks = feed(FrameStream(), data, [cut])
        assert b"".join(chunks) == data
        assert all(len(chunk) in (8, 14, 104, 22, 118, 126) for chunk in chunks)


def test_bytes_one_by_one() -> None:
    data = frame(4) + frame(10)
    assert feed(FrameStream(), data, [1] * len(data)) == [frame(4), frame(10)]


def test_random_frames_in_random_pieces() -> None:
    rng = random.Random(7)
    for _ in range(100):
        data = b"".join(frame(rng.choice([4, 5, 60, 300, 1000])) for _ in range(20))
        sizes = [rng.randrange(1, 700) for _ in range(200)]
        assert b"".join(feed(FrameStream(chunk_size=256), data, sizes)) == data


def test_frames_of_one_size_among_others_in_random_pieces() -> None:
    """Many frames of one size are checked in blocks."""
    rng = random.Random(8)
    for _ in range(100):
        data = b"".join(frame(rng.choice([4, 5, 60])) * rng.choice([1, 2, 15, 17, 40]) for _ in range(10))
        sizes = [rng.randrange(1, 3000) for _ in range(100)]
        for chunk in (chunks := feed(FrameStream(chunk_size=2048), data, sizes)):
            assert end_of_frames(chunk) == len(chunk)
        assert b"".join(chunks) == data


def end_of_frames(chunk: bytes) -> int:
    """Return the end of the last whole frame of a chunk."""
    position = 0
    while position < len(chunk):
        position += 4 + unpack_from("!i", chunk, position)[0]
    return position


@pytest.mark.parametrize("at", [2, 3, 17, 18, 19, 33])
def test_a_bad_length_behind_many_of_one_size_is_found(at: int) -> None:
    stream = FrameStream()
    data = frame(60) * at + pack("!i", -1) + frame(60) * 40
    stream.space()[: len(data)] = data
    assert stream.received(len(data)) == frame(60) * at
    assert stream.error is not None


def test_small_frames_are_lent_to_who_asks_for_that_and_big_ones_are_not() -> None:
    stream = FrameStream(lent_max=60)
    kept = []
    for data in (frame(60) * 3 + b"\0", frame(61)[1:], frame(4)):
        space = stream.space()
        space[: len(data)] = data
        kept.append(stream.received(len(data)))
    stream.space()[:3] = b"\xff\xff\xff"
    small, big, _ = kept
    assert bytes(small)[:3] == b"\xff\xff\xff"
    assert big == b"\0" + frame(61)[1:]


def test_a_frame_above_the_chunk_gets_a_buffer_of_its_size_and_no_more() -> None:
    stream = FrameStream(chunk_size=64)
    stream.space()[:8] = frame(1000)[:8]
    assert stream.received(8) == b""
    assert len(stream.space()) == 1004 - 8
    assert b"".join(feed(stream, frame(1000)[8:] + frame(4), [])) == frame(1000) + frame(4)
    assert len(stream.space()) == 64


def test_what_was_handed_out_is_not_written_to_again() -> None:
    stream = FrameStream(chunk_size=64)
    handed: list[memoryview] = []
    data = [frame(10), frame(500), frame(20), frame(600)]
    for piece in data:
        position = 0
        while position < len(piece):
            space = stream.space()
            size = min(len(space), len(piece) - position)
            space[:size] = piece[position : position + size]
            position += size
            chunk = stream.received(size)
            if chunk:
                handed.append(memoryview(chunk))
    assert [bytes(chunk) for chunk in handed] == data


@pytest.mark.parametrize("length", [0, 3, -1, -(1 << 31), FRAME_MAX + 1, (1 << 31) - 1])
def test_a_bad_length_is_refused_from_its_four_bytes(length: int) -> None:
    stream = FrameStream()
    stream.space()[:4] = pack("!i", length)
    refuses(MalformedError, lambda: stream.received(4))


def test_frames_before_a_bad_length_are_handed_out_first() -> None:
    stream = FrameStream()
    data = frame(10) + pack("!i", 0)
    stream.space()[: len(data)] = data
    assert stream.received(len(data)) == frame(10)
    assert stream.error is not None
    refuses(MalformedError, lambda: stream.received(0))
