"""Stored entries taken apart for the message viewer: what is large is for a worker, and what lies is refused."""

from __future__ import annotations

from broker.console.messages.entries import BATCH_MAX, LARGE_BATCH, LARGE_BYTES, UNPACKED_BYTES_MAX, is_large, unpack
from quire.client.compression import compress
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import entry

AT = Position(1, 2)


def stored(payload: bytes, **fields: object) -> bytes:
    return entry(payload, **fields)


def lz4(data: bytes, size: int | None = None) -> bytes:
    return stored(compress(pb.LZ4, data), compression=pb.LZ4, uncompressed_size=len(data) if size is None else size)


def test_an_entry_that_is_compressed_is_shown_as_it_was() -> None:
    [message] = unpack(AT, lz4(b"plain " * 100)).messages
    assert message.value == b"plain " * 100


def test_an_entry_that_stands_for_too_much_or_another_size_is_a_problem_and_not_decompressed() -> None:
    for size in (UNPACKED_BYTES_MAX + 1, 4_000_000_000, 5, 700):
        found = unpack(AT, lz4(b"x" * 600, size))
        assert "compressed bytes" in found.problem, size
        assert len(found.messages) == 1
    assert "compressed bytes" in unpack(AT, stored(b"\xff" * 50, compression=pb.LZ4, uncompressed_size=9)).problem


def test_what_takes_long_is_for_a_worker() -> None:
    assert not is_large(stored(b"x" * 1000))
    assert is_large(stored(b"x" * LARGE_BYTES))
    assert is_large(lz4(b"x" * (LARGE_BYTES + 1))), "a small entry that is a large one"
    assert is_large(stored(b"", num_messages_in_batch=LARGE_BATCH + 1))
    assert not is_large(b"no entry")


def test_a_batch_that_claims_too_many_messages_is_shown_as_one() -> None:
    for count, problem in ((BATCH_MAX + 1, "more than"), (BATCH_MAX, ""), (-5, ""), (0, "")):
        found = unpack(AT, stored(b"\0\0\0\0", num_messages_in_batch=count))
        assert len(found.messages) == 1
        assert problem in found.problem != ""
