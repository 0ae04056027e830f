"""Pieces of chunked messages give the same message as in the official clients, wherever the range begins."""

from __future__ import annotations

import itertools
import logging

import pytest

from quire.client.chunked.chunks import ChunkGap, Chunks
from quire.client.errors import CorruptEntryError
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from tests.support.refusals import refuses


def piece(chunk: int, chunks: int = 3, *, uuid: str = "p-1", producer: str = "p", size: int = 0) -> MessageMetadata:
    return MessageMetadata(
        producer_name=producer, uuid=uuid, chunk_id=chunk, num_chunks_from_msg=chunks, total_chunk_msg_size=size
    )


def body(entry_id: int, chunk: int) -> bytes:
    """Return a body by which two sends of the same piece can be distinguished."""
    return f"[{chunk}@{entry_id}]".encode()


def official(log: list[int], chunks: int = 3) -> dict[int, bytes]:
    """Return the deliveries by entry that the rules of the C++ client give for a topic of one message's pieces."""
    delivered: dict[int, bytes] = {}
    context: list[bytes] | None = None
    for entry_id, chunk in enumerate(log):
        if chunk == 0:
            context = [body(entry_id, 0)]
        elif context is None or chunk < len(context):
            continue
        elif chunk > len(context):
            context = None
        else:
            context.append(body(entry_id, chunk))
        if context is not None and len(context) == chunks:
            delivered[entry_id] = b"".join(context)
            context = None
    return delivered


def read(log: list[int], begin: int, *, step: int = 2) -> dict[int, bytes]:
    """Return the deliveries by Chunks from entry `begin` on; it looks back in steps of entries, nearest first."""
    chunks = Chunks(1000)
    delivered: dict[int, bytes] = {}
    gaps: list[ChunkGap] = []
    for entry_id in range(begin, len(log)):
        found = chunks.add(piece(log[entry_id]), body(entry_id, log[entry_id]), 5, entry_id, entry_id)
        if isinstance(found, ChunkGap):
            gaps.append(found)
        elif found is not None:
            delivered[entry_id] = found
    at = begin
    while chunks.open_gaps() and at > 0:
        for entry_id in range(max(0, at - step), at):
            chunks.look_back(piece(log[entry_id]), body(entry_id, log[entry_id]), 5, entry_id)
        at -= step
    for gap in gaps:
        whole = chunks.settle(gap)
        if whole is not None:
            delivered[gap.row] = whole
    return delivered


def test_every_order_of_pieces_read_from_any_entry_on_gives_what_the_official_client_gives() -> None:
    """Covers all logs of five pieces of a message in three: sent again, lost, cut anywhere."""
    complete = 0
    for log in itertools.product(range(3), repeat=5):
        expected = official(list(log))
        complete += len(expected)
        for begin in range(len(log)):
            wanted = {at: whole for at, whole in expected.items() if at >= begin}
            assert read(list(log), begin) == wanted, (log, begin)
    assert complete > 20


@pytest.mark.parametrize("step", [1, 3, 10])
def test_looking_back_may_go_in_steps_of_any_size(step: int) -> None:
    log = [0, 1, 0, 1, 1, 2, 2, 0, 1, 2]
    for begin in range(len(log)):
        assert read(log, begin, step=step) == {at: w for at, w in official(log).items() if at >= begin}


def test_messages_of_several_producers_and_uuids_do_not_mix() -> None:
    chunks = Chunks(1000)
    names = [("p", "p-1"), ("p", "p-2"), ("q", "p-1")]
    found = [
        chunks.add(piece(chunk, 2, uuid=uuid, producer=producer), f"{producer}{uuid}{chunk}".encode(), 1, number, 0)
        for number, (chunk, (producer, uuid)) in enumerate(itertools.product(range(2), names))
    ]
    assert found == [None, None, None, b"pp-10pp-11", b"pp-20pp-21", b"qp-10qp-11"]


def test_a_gap_tells_what_is_missing_and_is_open_until_piece_0_is_found() -> None:
    chunks = Chunks(1000)
    assert chunks.add(piece(2, 4), b"c", 7, 2, 9) is None
    gap = chunks.add(piece(3, 4), b"d", 8, 0, 9)
    assert isinstance(gap, ChunkGap)
    assert (gap.name, gap.ledger_id, gap.entry_id, gap.row) == (("p", "p-1"), 8, 0, 9)
    assert gap.missing_chunk_ids == [0, 1]
    assert chunks.open_gaps() == [gap]
    chunks.look_back(piece(1, 4), b"b", 7, 1)
    assert chunks.open_gaps() == [gap]
    assert gap.missing_chunk_ids == [0]
    chunks.look_back(piece(0, 4), b"a", 7, 0)
    assert chunks.open_gaps() == []
    assert chunks.settle(gap) == b"abcd"


def test_a_message_that_lost_a_piece_is_not_looked_for_further_back() -> None:
    chunks = Chunks(1000)
    gap = chunks.add(piece(2), b"c", 7, 2, 0)
    assert isinstance(gap, ChunkGap)
    chunks.look_back(piece(0), b"a", 7, 0)
    assert chunks.open_gaps() == []
    assert chunks.settle(gap) is None
    assert gap.missing_chunk_ids == [1]


def test_a_message_without_a_piece_in_the_range_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    chunks = Chunks(1000)
    with caplog.at_level(logging.WARNING):
        assert chunks.add(piece(0), b"a", 7, 0, 0) is None
        assert chunks.add(piece(2), b"c", 7, 1, 0) is None
    assert [record.getMessage() for record in caplog.records] == [
        "left out: a chunked message (p of p-1) at (7, 1) without its pieces [1]"
    ]


def test_the_bound_lets_go_of_what_was_begun_longest_ago_and_looks_back_for_it() -> None:
    chunks = Chunks(100)
    assert chunks.add(piece(0, 2, uuid="old"), b"o" * 60, 1, 0, 0) is None
    assert chunks.add(piece(0, 2, uuid="new"), b"n" * 60, 1, 1, 0) is None
    assert chunks.add(piece(1, 2, uuid="new"), b"N", 1, 2, 0) == b"n" * 60 + b"N"
    gap = chunks.add(piece(1, 2, uuid="old"), b"O", 1, 3, 0)
    assert isinstance(gap, ChunkGap)
    chunks.look_back(piece(0, 2, uuid="old"), b"o" * 60, 1, 0)
    assert chunks.settle(gap) == b"o" * 60 + b"O"


def test_looking_back_keeps_only_what_a_gap_needs() -> None:
    chunks = Chunks(100)
    chunks.look_back(piece(0, 2, uuid="other"), b"x" * 200, 1, 0)
    gap = chunks.add(piece(1, 2), b"b", 1, 3, 0)
    assert isinstance(gap, ChunkGap)
    chunks.look_back(piece(0, 2, uuid="other"), b"x" * 200, 1, 1)
    chunks.look_back(piece(0, 2), b"a", 1, 2)
    assert chunks.settle(gap) == b"ab"


def test_the_bound_does_not_let_go_of_what_a_gap_needs() -> None:
    chunks = Chunks(100)
    gap = chunks.add(piece(1, 2), b"b" * 40, 1, 1, 0)
    assert isinstance(gap, ChunkGap)
    for number in range(5):
        chunks.add(piece(0, 2, uuid=f"other-{number}"), b"x" * 50, 1, 2 + number, 0)
    for _ in range(5):  # shown again and again, it counts once
        chunks.look_back(piece(0, 2), b"a" * 40, 1, 0)
    assert chunks.settle(gap) == b"a" * 40 + b"b" * 40


def test_a_message_above_the_bound_is_refused() -> None:
    with pytest.raises(CorruptEntryError, match="101 bytes, and the limit is 100"):
        Chunks(100).add(piece(0, size=101), b"", 1, 0, 0)
    chunks = Chunks(100)
    chunks.add(piece(0), b"x" * 60, 1, 0, 0)
    refuses(CorruptEntryError, lambda: chunks.add(piece(1), b"x" * 60, 1, 1, 0), "above the limit of 100")


def test_unfinished_messages_are_bounded_in_number() -> None:
    chunks = Chunks(1000)
    for number in range(10_000):
        chunks.add(piece(0, 2, uuid=str(number)), b"", 1, number, 0)
    assert len(chunks._messages) <= 4096
    assert chunks.add(piece(1, 2, uuid="9999"), b"z", 1, 10_000, 0) == b"z"


@pytest.mark.parametrize("wrong", [piece(3), piece(-1), piece(0, uuid="")])
def test_a_piece_that_makes_no_sense_is_corrupt(wrong: MessageMetadata) -> None:
    refuses(CorruptEntryError, lambda: Chunks(100).add(wrong, b"", 1, 0, 0), "of 3 of a chunked message")
