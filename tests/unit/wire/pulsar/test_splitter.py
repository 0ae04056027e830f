from __future__ import annotations

import random
import struct

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.entry_features import TRANSACTION as OF_TRANSACTION
from quire.wire.pulsar.entry_features import features_of
from quire.wire.pulsar.frames import FRAME_SIZE_MAX
from quire.wire.pulsar.metadata import metadata_span, naming_transaction, peek
from quire.wire.pulsar.splitter import (
    CHUNK,
    MARKER,
    SHADOW,
    TRANSACTION,
    BadChecksum,
    BadFrameError,
    Item,
    Other,
    SendRun,
    Splitter,
)
from tests.support.effort import effort
from tests.support.pulsar_frames import command, entry, frame, send
from tests.support.refusals import refuses

PING = frame(command("PING", "ping"))


def split(data: bytes, splitter: Splitter | None = None) -> list[Item]:
    """Split all of `data` at once; every byte must be used."""
    items, used = (splitter or Splitter(FRAME_SIZE_MAX)).split(memoryview(data), 0, len(data))
    assert used == len(data)
    return items


def one_run(items: list[Item]) -> SendRun:
    assert len(items) == 1
    assert isinstance(items[0], SendRun)
    return items[0]


def test_consecutive_sends_of_a_producer_are_one_run_with_their_entries_verbatim() -> None:
    entries = [entry(b"x" * (n % 50), sequence_id=n) for n in range(1000)]
    run = one_run(split(b"".join(send(n, 7, stored) for n, stored in enumerate(entries))))
    assert run.producer_id == 7
    assert run.sequence_ids == list(range(1000))
    assert run.counts == [1] * 1000
    assert run.highest_ids is None
    assert run.flags == 0
    assert [bytes(payload) for payload in run.payloads] == entries


def test_payloads_are_views_of_the_chunk() -> None:
    chunk = memoryview(send(1) + send(2) + send(3) + send(4))
    items, _ = Splitter(FRAME_SIZE_MAX).split(chunk, 0, len(chunk))
    assert all(payload.obj is chunk.obj for payload in one_run(items).payloads)


@pytest.mark.parametrize("first", [0, 100, 127, 16_300, (1 << 21) - 5, (1 << 35) - 3, (1 << 63) - 130, (1 << 64) - 140])
@pytest.mark.parametrize("producer_id", [0, 127, 128, 1 << 40])
def test_sequence_ids_are_right_across_every_change_of_their_size(first: int, producer_id: int) -> None:
    run = one_run(split(b"".join(send(first + n, producer_id) for n in range(139))))
    assert run.sequence_ids == [first + n for n in range(139)]
    assert run.producer_id == producer_id


def test_a_change_of_producer_or_flags_or_another_command_begins_a_new_run() -> None:
    data = send(1) + send(2) + send(3, 9) + send(4) + PING + send(5) + send(6, is_chunk=True) + send(6, is_chunk=True)
    items = split(data)
    shapes = [
        (item.producer_id, item.sequence_ids, item.flags) if isinstance(item, SendRun) else repr(item) for item in items
    ]
    assert shapes == [(0, [1, 2], 0), (9, [3], 0), (0, [4], 0), "Other(PING)", (0, [5], 0), (0, [6, 6], CHUNK)]


def test_batches_carry_their_counts_and_highest_ids() -> None:
    frames = [send(10 * n, num_messages=10, highest_sequence_id=10 * n + 9) for n in range(5)]
    run = one_run(split(b"".join(frames)))
    assert run.counts == [10] * 5
    assert run.highest_ids == [9, 19, 29, 39, 49]
    steady = one_run(split(b"".join(send(n, num_messages=3, highest_sequence_id=500) for n in range(300))))
    assert steady.highest_ids == [500] * 300
    assert steady.counts == [3] * 300


@pytest.mark.parametrize("count", [0, -1, -(1 << 31)])
def test_a_count_below_one_counts_as_one_message(count: int) -> None:
    assert one_run(split(send(1, num_messages=count))).counts == [1]


def test_flags_tell_chunks_markers_transactions_and_shadow_ids() -> None:
    identity = pb.MessageIdData(ledgerId=1, entryId=2)
    for fields, flags in (
        ({"is_chunk": True}, CHUNK),
        ({"marker": True}, MARKER),
        ({"txnid_least_bits": 0, "txnid_most_bits": 3}, TRANSACTION),
        ({"message_id": identity}, SHADOW),
        ({"txnid_least_bits": 0, "txnid_most_bits": 0}, TRANSACTION),  # the first one of coordinator 0
        ({"is_chunk": False, "marker": False}, 0),
    ):
        assert one_run(split(send(1, **fields))).flags == flags


def test_a_transaction_that_only_the_command_names_is_added_to_the_metadata() -> None:
    """So the Go client sends: without it, nothing in the log would say that the message is of a transaction."""
    [payload] = one_run(split(send(1, txnid_least_bits=0, txnid_most_bits=3))).payloads
    assert features_of(payload, check=True) == OF_TRANSACTION
    assert peek(payload).transaction == (3, 0)
    plain = one_run(split(send(1))).payloads[0]
    assert payload[metadata_span(payload)[1] :] == plain[metadata_span(plain)[1] :]
    again = naming_transaction(payload, (5, 5))
    assert again is payload  # what the client wrote counts


def test_a_bad_checksum_ends_the_run_and_the_next_send_is_still_read() -> None:
    for bad in range(6):
        frames = [bytearray(send(n)) for n in range(6)]
        frames[bad][-1] ^= 1
        items = split(b"".join(frames))
        assert [(item.producer_id, item.sequence_id) for item in items if isinstance(item, BadChecksum)] == [(0, bad)]
        taken = [number for item in items if isinstance(item, SendRun) for number in item.sequence_ids]
        assert taken == [n for n in range(6) if n != bad]


def test_every_flipped_bit_of_an_entry_is_noticed() -> None:
    good = send(3)
    start = len(good) - len(entry(sequence_id=3))
    for at in range(start, len(good)):
        for bit in range(8):
            bad = bytearray(send(1) + send(2) + good)
            bad[len(send(1)) + len(send(2)) + at] ^= 1 << bit
            try:
                items = split(bytes(bad))
            except BadFrameError as error:
                items = error.items
                assert at < start + 2, "only the magic is a matter for BadFrameError"
            assert all(item.sequence_ids == [1, 2] for item in items if isinstance(item, SendRun))


def test_metadata_longer_than_its_frame_is_a_bad_checksum_even_if_the_checksum_is_right() -> None:
    from crc32c import crc32c

    body = struct.pack("!I", 1000) + b"short"
    stored = struct.pack("!HI", 0x0E01, crc32c(body)) + body
    items = split(send(1) + send(2) + send(3, stored=stored))
    assert isinstance(items[-1], BadChecksum)
    assert items[-1].sequence_id == 3


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!I", 0),
        struct.pack("!I", 3) + b"abc",
        struct.pack("!I", 1 << 31),
        struct.pack("!I", 0xFFFF_FFFF),
        struct.pack("!I", FRAME_SIZE_MAX - 3),
        struct.pack("!II", 4, 0),  # an empty command
        struct.pack("!II", 8, 5) + b"\x08\x12\x92\x01",  # the command ends behind the frame
        struct.pack("!II", 8, 0xFFFF_FFFF) + b"\x08\x12\x92\x01",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("16030102000100 01fc0303"),  # a TLS hello
        frame(b"\x08"),
        frame(b"\x08\x06\x32\x80"),
        frame(b"\x08\x06\x32\x05\x08\x01\x10\x80\x80", entry()),  # a sequence id without its end
        frame(b"\x08\x06\x32\x02\x08\x01", entry()),  # no sequence id
        frame(b"\x08\x06", entry()),  # a SEND that is not there
        frame(b"\x08\x05"),
        frame(b"\x08\x05\x2a\x00"),  # a PRODUCER without a topic
        frame(b"\x08\x46"),  # a type nobody knows
        frame(b"\x12\x00"),
        frame(command("PING", "ping"), b"x"),
        frame(command("SEND", "send", producer_id=1, sequence_id=1)),  # no payload part
        frame(command("SEND", "send", producer_id=1, sequence_id=1), b"\x0e\x01\x00"),
        frame(command("SEND", "send", producer_id=1, sequence_id=1), entry()[6:]),  # no checksum
        frame(command("SEND", "send", producer_id=1, sequence_id=1), b"\x0e\x02\x00\x00\x00\x00" + entry()),
        frame(command("LOOKUP", "lookupTopic", topic="abc", request_id=1).replace(b"abc", b"a\xff\xfe")),
        frame(
            command("ACK", "ack", consumer_id=1, ack_type=0, properties=[pb.KeyLongValue(key="abc", value=1)]).replace(
                b"abc", b"a\xff\xfe"
            )
        ),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_is_no_frame_closes_the_connection_after_the_frames_before_it(data: bytes) -> None:
    before = send(1) + send(2) + send(3) + PING
    with pytest.raises(BadFrameError) as caught:
        Splitter(FRAME_SIZE_MAX).split(memoryview(before + data), 0, len(before) + len(data))
    run, ping = caught.value.items
    assert isinstance(run, SendRun)
    assert run.sequence_ids == [1, 2, 3]
    assert isinstance(ping, Other)


def test_a_frame_above_the_limit_is_refused_from_its_header() -> None:
    small = send(1)
    splitter = Splitter(len(small))
    assert one_run(split(small, splitter)).sequence_ids == [1]
    larger = send(2, stored=entry(b"hello!"))
    for end in range(4, len(larger) + 1):
        with pytest.raises(BadFrameError):
            splitter.split(memoryview(larger), 0, end)
    refuses(BadFrameError, lambda: splitter.needed(memoryview(larger), 0, 4))


def test_the_limit_holds_for_a_frame_that_only_counts_on() -> None:
    frames = send(1) + send(2) + send(3)
    splitter = Splitter(len(send(1)))
    data = frames + send(4, stored=entry(b"hello!", sequence_id=4))
    with pytest.raises(BadFrameError) as caught:
        splitter.split(memoryview(data), 0, len(data))
    assert one_run(caught.value.items).sequence_ids == [1, 2, 3]


def test_a_sequence_id_cut_off_where_the_next_one_would_have_grown_is_no_send() -> None:
    good = send(125) + send(126) + send(127)
    cut = bytearray(send(127))
    assert cut[15] == 127
    cut[15] = 128  # says that another byte follows, and none does
    with pytest.raises(BadFrameError) as caught:
        Splitter(FRAME_SIZE_MAX).split(memoryview(good + cut), 0, len(good) + len(cut))
    assert one_run(caught.value.items).sequence_ids == [125, 126, 127]


@pytest.mark.parametrize("last", [0x01, 0x02, 0x7F, 0x80])
def test_numbers_beyond_64_bits_are_what_protobuf_makes_of_them(last: int) -> None:
    raw = b"\x08\x06\x32\x0d\x08\x01\x10" + b"\xff" * 9 + bytes([last])
    try:
        expected = pb.BaseCommand.FromString(raw).send.sequence_id
    except DecodeError:
        refuses(BadFrameError, lambda: split(frame(raw, entry())))
    else:
        assert one_run(split(frame(raw, entry()))).sequence_ids == [expected]


def test_needed_tells_the_size_of_a_frame_that_has_begun() -> None:
    whole = memoryview(send(1))
    splitter = Splitter(FRAME_SIZE_MAX)
    assert splitter.needed(whole, 0, 0) == 4
    assert splitter.needed(whole, 0, 3) == 4
    assert splitter.needed(whole, 0, 4) == len(whole)


def test_partial_frames_wait_for_the_rest_at_every_cut() -> None:
    data = send(126) + send(127) + send(128) + PING + send(129, 5) + send(130, 5) + send(131, 5)
    whole = _flat(split(data))
    for cut in range(len(data) + 1):
        splitter = Splitter(FRAME_SIZE_MAX)
        first, used = splitter.split(memoryview(data), 0, cut)
        assert used <= cut
        second, rest = splitter.split(memoryview(data), used, len(data))
        assert used + rest == len(data)
        assert _flat(first) + _flat(second) == whole


def test_a_pass_begins_where_it_is_told() -> None:
    data = b"junk" + send(1) + b"more junk"
    items, used = Splitter(FRAME_SIZE_MAX).split(memoryview(data), 4, 4 + len(send(1)))
    assert used == len(send(1))
    assert one_run(items).sequence_ids == [1]


def test_a_command_of_the_newest_client_is_read() -> None:
    # CONNECT as pulsar-client 3.13.0 sends it
    data = (
        bytes.fromhex("00000029 00000025 0802 1221 0a11")
        + b"Pulsar-CPP-v4.2.0"
        + bytes.fromhex("2014 2a046e6f6e65 520408011001")
    )
    (item,) = split(data)
    assert isinstance(item, Other)
    assert item.command.connect.client_version == "Pulsar-CPP-v4.2.0"
    assert item.command.connect.protocol_version == 20
    assert item.command.connect.feature_flags.supports_broker_entry_metadata


def test_text_beyond_ascii_is_fine_if_it_is_utf_8() -> None:
    (item,) = split(frame(command("LOOKUP", "lookupTopic", topic="größe", request_id=1 << 40)))
    assert isinstance(item, Other)
    assert item.command.lookupTopic.topic == "größe"


_numbers = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
_counts = st.one_of(st.none(), st.integers(-3, 300), st.integers(-(1 << 31), (1 << 31) - 1))


@st.composite
def _send_commands(draw: st.DrawFn) -> bytes:
    """Draw a SEND command: fields in any order, some of them twice, and perhaps unknown fields."""
    fields = [("producer_id", draw(_numbers)), ("sequence_id", draw(_numbers))]
    for name, values in (
        ("num_messages", st.integers(-(1 << 31), (1 << 31) - 1)),
        ("txnid_least_bits", _numbers),
        ("txnid_most_bits", _numbers),
        ("highest_sequence_id", _numbers),
        ("is_chunk", st.booleans()),
        ("marker", st.booleans()),
        ("sequence_id", _numbers),
        ("producer_id", _numbers),
    ):
        if draw(st.integers(0, 3)) == 0:
            fields.append((name, draw(values)))
    if draw(st.booleans()):
        fields = draw(st.permutations(fields))
    body = b""
    for name, value in fields:
        part = pb.CommandSend()
        setattr(part, name, value)
        body += part.SerializePartialToString()
    if draw(st.integers(0, 5)) == 0:
        body += draw(st.sampled_from([b"\x48\x01", b"\xf8\x01\x01", b"\x4a\x04\x08\x01\x10\x02", b"\x10\x81\x80\x00"]))
    size = bytes([len(body)]) if len(body) < 128 else bytes([len(body) & 127 | 128, len(body) >> 7])
    return b"\x08\x06\x32" + size + body


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(st.lists(_send_commands(), min_size=1, max_size=6))
def test_every_form_of_send_means_what_protobuf_says(commands: list[bytes]) -> None:
    stored = entry()
    expected = []
    for raw in commands:
        message = pb.BaseCommand.FromString(raw).send
        expected.append(
            (
                message.producer_id,
                message.sequence_id,
                max(1, message.num_messages),
                message.highest_sequence_id if message.HasField("highest_sequence_id") else None,
                message.is_chunk * CHUNK
                | message.marker * MARKER
                | (
                    bool(message.txnid_least_bits or message.txnid_most_bits)
                    or (message.HasField("txnid_least_bits") and message.HasField("txnid_most_bits"))
                )
                * TRANSACTION
                | message.HasField("message_id") * SHADOW,
            )
        )
    found = []
    for item in split(b"".join(frame(raw, stored) for raw in commands)):
        assert isinstance(item, SendRun)
        assert len(item.payloads) == len(item.counts) == len(item.sequence_ids)
        for index, sequence_id in enumerate(item.sequence_ids):
            highest = None if item.highest_ids is None else item.highest_ids[index]
            found.append((item.producer_id, sequence_id, item.counts[index], highest, item.flags))
    assert found == expected


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-4, 4), st.integers(0, 40))),
    st.integers(0, 300),
)
def test_runs_mean_the_same_as_frames_read_one_by_one(steps: list[tuple[int, int, int, int]], first: int) -> None:
    next_id = [first, first, first]
    frames = []
    for producer, kind, jump, size in steps:
        next_id[producer] = max(0, next_id[producer] + (jump if kind == 0 else 1))
        frames.append(send(next_id[producer], producer, entry(b"." * size)))
    together = _flat(split(b"".join(frames)))
    apart = [found for data in frames for found in _flat(split(data))]
    assert together == apart


def test_random_bytes_and_damaged_frames_never_raise_anything_but_frame_error() -> None:
    rng = random.Random(20)
    samples = [
        send(5),
        send(6, num_messages=4, highest_sequence_id=9),
        PING,
        frame(command("ACK", "ack", consumer_id=1, ack_type=0, message_id=[pb.MessageIdData(ledgerId=1, entryId=2)])),
        frame(command("LOOKUP", "lookupTopic", topic="a", request_id=1)),
    ]
    splitter = Splitter(FRAME_SIZE_MAX)
    refused = accepted = 0
    for _ in range(100_000):
        data = bytearray(rng.choice(samples) + rng.choice(samples))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.1:
            data = bytearray(rng.randbytes(rng.randrange(60)))
        try:
            items, used = splitter.split(memoryview(data), 0, len(data))
        except BadFrameError:
            refused += 1
        else:
            assert 0 <= used <= len(data)
            accepted += len(items)
    assert refused > 10_000
    assert accepted > 10_000


def _flat(items: list[Item]) -> list[object]:
    flat: list[object] = []
    for item in items:
        if isinstance(item, SendRun):
            assert item.sequence_ids
            flat += zip(
                [item.producer_id] * len(item.counts), item.sequence_ids, map(bytes, item.payloads), strict=True
            )
        else:
            flat.append(repr(item))
    return flat
