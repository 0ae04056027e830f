from __future__ import annotations

import random
from typing import Any

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import ClientItem, ClientSplitter, MessageRun, ReceiptRun
from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.frames import FRAME_SIZE_MAX, MessageEncoder, ReceiptEncoder, encode
from quire.wire.pulsar.receive_buffer import CHUNK_SIZE, ChunkBuffer
from quire.wire.pulsar.splitter import Other
from tests.support.pulsar_frames import command, entry, frame
from tests.support.refusals import refuses


def split(data: bytes, splitter: ClientSplitter | None = None) -> list[ClientItem]:
    """Return all items of whole frames."""
    view = memoryview(bytearray(data))
    items, consumed = (splitter or ClientSplitter(FRAME_SIZE_MAX)).split(view, 0, len(view))
    assert consumed == len(data)
    return items


def message(consumer_id: int, ledger_id: int, entry_id: int, stored: bytes, **place: Any) -> bytes:
    """Return a MESSAGE as protobuf encodes it."""
    message_id = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id, **place)
    return frame(command("MESSAGE", "message", consumer_id=consumer_id, message_id=message_id), stored)


def receipt(producer_id: int, sequence_id: int, ledger_id: int, entry_id: int, **more: Any) -> bytes:
    message_id = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
    return frame(
        command(
            "SEND_RECEIPT",
            "send_receipt",
            producer_id=producer_id,
            sequence_id=sequence_id,
            message_id=message_id,
            **more,
        )
    )


def rows(items: list[ClientItem]) -> list[tuple[object, ...]]:
    """Return every message and receipt as a row of its own."""
    found: list[tuple[object, ...]] = []
    for item in items:
        if isinstance(item, MessageRun):
            assert item.size == sum(map(len, item.entries))
            rows = zip(item.ledger_ids, item.entry_ids, item.entries, strict=True)
            found += [(item.consumer_id, *row) for row in rows]
        elif isinstance(item, ReceiptRun):
            found += [(item.producer_id, sequence_id) for sequence_id in item.sequence_ids]
        else:
            found.append((item.command.type,))
    return found


@pytest.mark.parametrize("partition", [-1, 0, 300])
@pytest.mark.parametrize("first", [0, 120, 16_380, (1 << 40) - 3])
def test_messages_of_a_run_come_out_as_one_run_whatever_their_ids(first: int, partition: int) -> None:
    entries = [entry(bytes([n % 251]) * (n % 7 * 100), sequence_id=n) for n in range(300)]
    out: list[Any] = []
    MessageEncoder(200, partition).frames(out, 1 << 33, first, entries)
    items = split(b"".join(out))
    assert len(items) == 1
    assert rows(items) == [(200, 1 << 33, first + n, stored) for n, stored in enumerate(entries)]


def test_what_is_cut_by_hand_is_what_protobuf_reads() -> None:
    rng = random.Random(5)
    expected: list[tuple[object, ...]] = []
    frames: list[bytes] = []
    place = [1, 0]
    for _ in range(3000):
        kind = rng.random()
        if kind < 0.02:
            frames.append(encode(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())))
            expected.append((pb.BaseCommand.PING,))
        elif kind < 0.3:
            numbers = [rng.choice((1, 127, 128, 300, (1 << 63) - 1)) for _ in range(4)]
            more = {"highest_sequence_id": 9} if kind < 0.05 else {}
            frames.append(receipt(*numbers, **more))
            expected.append((numbers[0], numbers[1]))
        else:
            if rng.random() < 0.05:
                place = [rng.randrange(1 << 20), rng.choice((0, 100, 16_000))]
            consumer_id = rng.choice((1, 1, 1, 1, 1, 500))
            stored = rng.randbytes(rng.choice((0, 3, 200)))
            shape = rng.random()
            if shape < 0.9:
                frames.append(message(consumer_id, place[0], place[1], stored))
            elif shape < 0.95:
                frames.append(message(consumer_id, place[0], place[1], stored, batch_index=3, batch_size=9))
            else:
                message_id = pb.MessageIdData(ledgerId=place[0], entryId=place[1])
                unusual = command(
                    "MESSAGE",
                    "message",
                    consumer_id=consumer_id,
                    message_id=message_id,
                    redelivery_count=2,
                    ack_set=[5],
                )
                frames.append(frame(unusual, stored))
            expected.append((consumer_id, place[0], place[1], stored))
            place[1] += 1
    assert rows(split(b"".join(frames))) == expected


@pytest.mark.parametrize("first", [(0, 0), (100, 5), (16_300, 127), (5, (1 << 35) - 2)])
def test_receipts_of_a_run_come_out_as_one_run(first: tuple[int, int]) -> None:
    sequence_id, entry_id = first
    data = ReceiptEncoder(3, 2).encode(range(sequence_id, sequence_id + 400), None, 77, entry_id)
    items = split(data)
    assert len(items) == 1
    run = items[0]
    assert isinstance(run, ReceiptRun)
    assert run.sequence_ids == list(range(sequence_id, sequence_id + 400))
    assert (run.producer_id, run.ledger_id, run.entry_id, run.partition) == (3, 77, entry_id + 399, 2)


def test_a_receipt_that_skips_a_number_is_read_as_it_stands() -> None:
    data = receipt(1, 5, 7, 0) + receipt(1, 6, 7, 1) + receipt(1, 8, 7, 2) + receipt(1, 9, 7, 2) + receipt(1, 10, 8, 0)
    [run] = split(data)
    assert isinstance(run, ReceiptRun)
    assert run.sequence_ids == [5, 6, 8, 9, 10]
    assert (run.ledger_id, run.entry_id) == (8, 0)


def test_the_receipt_of_a_duplicate_names_no_entry() -> None:
    none = (1 << 64) - 1
    [run] = split(receipt(1, 5, 3, 3) + receipt(1, 6, none, none))
    assert isinstance(run, ReceiptRun)
    assert (run.sequence_ids, run.ledger_id, run.entry_id) == ([5, 6], -1, -1)


def test_frames_come_out_whole_whatever_the_pieces() -> None:
    rng = random.Random(8)
    entries = [rng.randbytes(rng.choice((10, 1000, 20_000, 400_000))) for _ in range(60)]
    data = b"".join(message(1, 2, n, stored) for n, stored in enumerate(entries))
    for _ in range(5):
        buffer = ChunkBuffer(ClientSplitter(FRAME_SIZE_MAX))
        found: list[tuple[object, ...]] = []
        at = 0
        while at < len(data):
            space = buffer.space()
            size = min(len(space), len(data) - at, rng.choice((1, 9, 3000, 1 << 20)))
            space[:size] = data[at : at + size]
            at += size
            found += rows(buffer.received(size))
        assert found == [(1, 2, n, stored) for n, stored in enumerate(entries)]
        assert len(buffer.space()) <= CHUNK_SIZE


def test_a_frame_above_the_limit_is_refused_from_its_header() -> None:
    buffer = ChunkBuffer(ClientSplitter(1000))
    buffer.space()[:8] = (5 << 20).to_bytes(4, "big") + bytes(4)
    refuses(FrameError, lambda: buffer.received(8), "above the limit")


def test_the_limit_is_the_brokers_once_it_has_told() -> None:
    splitter = ClientSplitter(1000)
    data = message(1, 2, 3, bytes(2000)) + message(1, 2, 4, bytes(2000))
    refuses(FrameError, lambda: split(data, splitter), "above the limit")
    splitter.accept(3000)
    assert len(rows(split(data, splitter))) == 2
    too_large = message(1, 2, 5, bytes(3000))  # alike, but for its size
    refuses(FrameError, lambda: split(data + too_large, splitter), "above the limit")


@pytest.mark.parametrize(
    "data",
    [
        bytes(8),
        (8).to_bytes(4, "big") + (100).to_bytes(4, "big") + bytes(100),
        frame(b"\xff\xff"),
        frame(command("SUCCESS", "success", request_id=1), b"tail"),
        frame(bytes(pb.BaseCommand(type=pb.BaseCommand.SUCCESS).SerializePartialToString())),
        receipt(1, 2, 3, 4)[:-1] + b"\xff",
        frame(command("MESSAGE", "message", consumer_id=1, message_id=pb.MessageIdData(ledgerId=1, entryId=1))[:-1]),
    ],
)
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    refuses(FrameError, lambda: split(data))


def test_a_frame_that_only_looks_like_the_last_one_is_looked_at_again() -> None:
    whole = message(1, 2, 3, b"x" * 50)
    short = message(1, 2, 4, b"")  # alike, and shorter than its head says if the total lies
    lying = (len(short) - 4 - 6).to_bytes(4, "big") + short[4:-6]
    refuses(FrameError, lambda: split(whole + lying + bytes(20)))


def test_other_commands_come_out_one_by_one() -> None:
    items = split(encode(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())) * 2)
    assert [type(item) for item in items] == [Other, Other]


def test_an_entry_id_that_would_carry_is_not_taken_for_the_next_one() -> None:
    whole = message(1, 2, 127, b"x" * 50, partition=3)
    at = whole.index(b"\x10\x7f\x18") + 1
    carried = whole[:at] + b"\x80" + whole[at + 1 :]  # alike, but the id goes on into what follows
    refuses(FrameError, lambda: split(whole + carried))
