from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import EncodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import Buffer, MessageEncoder, ReceiptEncoder, SendEncoder, encode, encode_varint
from tests.support.effort import effort
from tests.support.pulsar_frames import entry, frame, send

U64 = (1 << 64) - 1
ids = st.one_of(st.integers(0, 500), st.integers(0, 1 << 40), st.integers(0, (1 << 63) - 1000))
partitions = st.one_of(st.just(-1), st.integers(0, 3), st.integers(0, (1 << 31) - 1))


def message_id(ledger_id: int, entry_id: int, partition: int) -> pb.MessageIdData:
    identity = pb.MessageIdData(ledgerId=ledger_id & U64, entryId=entry_id & U64)
    if partition >= 0:
        identity.partition = partition
    return identity


def receipt(producer_id: int, sequence_id: int, highest: int | None, identity: pb.MessageIdData) -> bytes:
    fields: dict[str, Any] = {} if highest is None else {"highest_sequence_id": highest}
    part = pb.CommandSendReceipt(producer_id=producer_id, sequence_id=sequence_id, message_id=identity, **fields)
    return frame(pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=part).SerializeToString())


def message(
    consumer_id: int,
    identity: pb.MessageIdData,
    payload: bytes,
    count: int,
    ack_set: list[int] | None,
    epoch: int | None,
) -> bytes:
    part = pb.CommandMessage(consumer_id=consumer_id, message_id=identity, ack_set=ack_set or [])
    if count:
        part.redelivery_count = count
    if epoch is not None:
        part.consumer_epoch = epoch
    return frame(pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=part).SerializeToString(), payload)


@given(st.one_of(st.integers(-1, 1 << 22), st.integers(-(1 << 63), (1 << 64) - 1)))
@example(0x0FFF_FFFF)
@example(0x1000_0000)
def test_varints_are_those_of_protobuf(value: int) -> None:
    unsigned = value & ((1 << 64) - 1)
    assert b"\x08" + encode_varint(value) == pb.CommandSend(producer_id=unsigned).SerializePartialToString()


def test_a_command_is_framed_with_both_sizes() -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=5))
    assert encode(command) == frame(command.SerializeToString())
    assert encode(command).hex() == "0000000a00000006080d6a020805"


def test_a_command_with_a_required_field_missing_is_not_sent() -> None:
    with pytest.raises(EncodeError):
        encode(pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess()))


def test_the_part_of_every_command_has_the_number_of_its_type() -> None:
    parts = pb.BaseCommand.DESCRIPTOR.fields_by_number
    types = {kind.number for kind in pb.BaseCommand.Type.DESCRIPTOR.values}
    assert types == {*range(2, 41), *range(50, 69)}
    assert set(parts) == types | {1}


@pytest.mark.parametrize("producer_id", [0, 127, 128, (1 << 64) - 1])
@pytest.mark.parametrize("first", [0, 126, 16_383, (1 << 63) - 2])
def test_send_frames_are_byte_for_byte_what_protobuf_writes(producer_id: int, first: int) -> None:
    entries = [entry(b"x" * n) for n in (0, 5, 300)]
    counts = [1, 128, 20_000]
    parts = SendEncoder(producer_id).frames(first, counts, entries)
    expected = [
        send(first + before, producer_id, stored, num_messages=count)
        for before, stored, count in zip([0, 1, 129], entries, counts, strict=True)
    ]
    assert b"".join(parts) == b"".join(expected)
    assert parts[1::2] == entries


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(ids, ids, ids, ids, partitions, st.integers(1, 400))
def test_receipts_of_a_steady_run_are_what_protobuf_writes(
    producer_id: int, first: int, ledger_id: int, entry_id: int, partition: int, count: int
) -> None:
    encoder = ReceiptEncoder(producer_id, partition)
    expected = [
        receipt(producer_id, first + n, None, message_id(ledger_id, entry_id + n, partition)) for n in range(count)
    ]
    assert encoder.encode(range(first, first + count), None, ledger_id, entry_id) == b"".join(expected)
    assert encoder.encode(list(range(first, first + count)), None, ledger_id, entry_id) == b"".join(expected)


@settings(max_examples=effort(quick=66, full=200), deadline=None)
@given(ids, st.lists(st.tuples(ids, ids), min_size=1, max_size=20), st.booleans(), ids, ids, partitions)
def test_receipts_of_any_run_are_what_protobuf_writes(
    producer_id: int, pairs: list[tuple[int, int]], highest: bool, ledger_id: int, entry_id: int, partition: int
) -> None:
    encoder = ReceiptEncoder(producer_id, partition)
    encoder.encode([1], None, 3, 4)  # whatever it remembers of another ledger must not matter
    expected = [
        receipt(producer_id, seq, high if highest else None, message_id(ledger_id, entry_id + n, partition))
        for n, (seq, high) in enumerate(pairs)
    ]
    highest_ids = [high for _, high in pairs] if highest else None
    found = encoder.encode([seq for seq, _ in pairs], highest_ids, ledger_id, entry_id)
    assert found == b"".join(expected)


def test_runs_that_only_look_steady_at_their_ends_are_written_one_by_one() -> None:
    sequence_ids = [5, 9, 7, 8]
    expected = b"".join(receipt(1, seq, None, message_id(2, n, -1)) for n, seq in enumerate(sequence_ids))
    assert ReceiptEncoder(1).encode(sequence_ids, None, 2, 0) == expected


def test_the_receipt_of_a_duplicate_has_no_place() -> None:
    assert ReceiptEncoder(1).encode([5], None, -1, -1) == receipt(1, 5, None, message_id(-1, -1, -1))


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(
    ids,
    ids,
    ids,
    partitions,
    st.one_of(st.integers(1, 5), st.integers(20, 300)),
    st.one_of(st.none(), ids),
    st.booleans(),
    st.data(),
)
def test_messages_are_what_protobuf_writes(
    consumer_id: int,
    ledger_id: int,
    first: int,
    partition: int,
    count: int,
    epoch: int | None,
    scattered: bool,
    data: st.DataObject,
) -> None:
    payloads = [bytes([n & 0xFF]) * (n * 7 % 90) for n in range(count)]
    entry_ids = data.draw(st.lists(ids, min_size=count, max_size=count)) if scattered else None
    counts = acks = None
    if count <= 30 and data.draw(st.booleans()):
        counts = data.draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    if count <= 30 and data.draw(st.booleans()):
        words = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=16)
        acks = data.draw(st.lists(st.one_of(st.none(), words), min_size=count, max_size=count))
    out: list[Buffer] = [b"earlier"]
    size = MessageEncoder(consumer_id, partition).frames(
        out,
        ledger_id,
        first,
        payloads,
        redelivery_counts=counts,
        ack_sets=acks,
        entry_ids=entry_ids,
        consumer_epoch=epoch,
    )
    expected = [
        message(
            consumer_id,
            message_id(ledger_id, entry_ids[n] if entry_ids else first + n, partition),
            payload,
            counts[n] if counts else 0,
            acks[n] if acks else None,
            epoch,
        )
        for n, payload in enumerate(payloads)
    ]
    assert b"".join(out) == b"earlier" + b"".join(expected)
    assert size == len(b"".join(expected))


def test_payloads_are_handed_on_without_a_copy() -> None:
    for count in (1, 10, 200):
        payloads = [bytearray(100) for _ in range(count)]
        out: list[Buffer] = []
        MessageEncoder(1).frames(out, 2, 3, payloads)
        assert all(mine is theirs for mine, theirs in zip(out[1::2], payloads, strict=True))


def test_an_encoder_may_go_from_ledger_to_ledger() -> None:
    encoder = MessageEncoder(1)
    for ledger_id in (5, 0, 300, 5):
        out: list[Buffer] = []
        encoder.frames(out, ledger_id, 9, [b"x"])
        assert b"".join(out) == message(1, message_id(ledger_id, 9, -1), b"x", 0, None, None)
