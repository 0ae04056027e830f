"""Stored entries give the messages that were sent; an error of an entry names its position."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from quire.client.batches import key_of, properties_of
from quire.client.compression import KINDS, compress
from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError, EncryptedEntryError
from quire.client.unpacking import Messages, Opener
from quire.wire.pulsar.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata
from tests.support.pulsar_frames import entry
from tests.support.refusals import refuses

GOLDEN = Path(__file__).parents[2] / "golden" / "pulsar"


def deliveries(*entries: bytes, ledger: int = 5) -> Deliveries:
    return Deliveries([ledger] * len(entries), list(range(len(entries))), list(entries))


def opened(*entries: bytes, **bounds: int) -> Messages:
    into = Messages()
    assert Opener(**bounds).open(deliveries(*entries), into) == []
    consistent(into)
    return into


def consistent(messages: Messages) -> None:
    assert {len(column) for column in messages._columns()} == {len(messages)}


def batch(*payloads: bytes, compression: str = "none", ordering_keys: tuple[bytes, ...] = (), **fields) -> bytes:
    parts = []
    for number, payload in enumerate(payloads):
        single = SingleMessageMetadata(payload_size=len(payload), compacted_out=payload == b"gone", sequence_id=number)
        if number < len(ordering_keys):
            single.ordering_key = ordering_keys[number]
        raw = single.SerializeToString()
        parts.append(struct.pack("!I", len(raw)) + raw + payload)
    whole = b"".join(parts)
    if compression != "none":
        fields |= {"compression": KINDS[compression], "uncompressed_size": len(whole)}
    return entry(compress(KINDS[compression], whole), num_messages_in_batch=len(payloads), **fields)


def test_plain_entries_give_all_columns() -> None:
    found = opened(
        entry(
            b"a", publish_time=1763737000001, partition_key="k", event_time=7, properties=[{"key": "x", "value": "y"}]
        ),
        entry(b"", publish_time=1763737000002),
        entry(b"c", publish_time=3, null_value=True, partition_key="aw==", partition_key_b64_encoded=True),
    )
    assert found.values == [b"a", b"", None]
    assert found.keys == [b"k", None, b"k"]
    assert (found.ledger_ids, found.entry_ids) == ([5, 5, 5], [0, 1, 2])
    assert (found.batch_indexes, found.batch_sizes) == ([-1] * 3, [0] * 3)
    assert found.publish_ms == [1763737000001, 1763737000002, 3]
    assert found.event_ms == [7, 0, 0]
    assert found.properties == [[("x", "y")], [], []]


def test_batches_between_plain_entries_keep_the_order_and_have_numbers() -> None:
    found = opened(entry(b"a"), batch(b"b", b"gone", b"c", publish_time=9), entry(b"d"), entry(b"e"), batch(b"f"))
    assert found.values == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert found.entry_ids == [0, 1, 1, 2, 3, 4]
    assert found.batch_indexes == [-1, 0, 2, -1, -1, 0]
    assert found.batch_sizes == [0, 3, 3, 0, 0, 1]
    assert found.publish_ms[1:3] == [9, 9]
    assert opened(batch(b"a", b"b", schema_version=b"1"), entry(b"c")).schema_versions == [b"1", b"1", b""]


def test_a_compacted_batch_and_entries_around_it_keep_their_ordering_keys() -> None:
    middle = batch(b"a", b"gone", b"c", ordering_keys=(b"1", b"2", b"4"))
    found = opened(entry(b"x", ordering_key=b"3"), middle, entry(b"y"))
    assert found.values == [b"x", b"a", b"c", b"y"]
    assert found.ordering_keys == [b"3", b"1", b"4", None]


@pytest.mark.parametrize("compression", KINDS)
def test_every_compression_is_opened(compression: str) -> None:
    kind = KINDS[compression]
    text = b"compress me " * 30
    plain = entry(compress(kind, text), compression=kind, uncompressed_size=len(text), partition_key="k")
    found = opened(plain, batch(text, b"b", compression=compression))
    assert found.values == [text, text, b"b"]
    assert found.keys == [b"k", None, None]


u64 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
texts = st.one_of(st.text(max_size=9), st.text(min_size=120, max_size=140))


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=30),
            st.fixed_dictionaries(
                {"producer_name": texts, "sequence_id": u64, "publish_time": u64},
                optional={
                    "partition_key": texts,
                    "event_time": u64,
                    "null_value": st.booleans(),
                    "schema_version": st.binary(max_size=9),
                    "ordering_key": st.binary(max_size=9),
                    "highest_sequence_id": u64,
                    "deliver_at_time": st.integers(0, 1 << 50),
                    "txnid_least_bits": u64,
                    "replicated_from": texts,
                    "properties": st.lists(st.fixed_dictionaries({"key": texts, "value": texts}), max_size=2),
                },
            ),
        ),
        max_size=5,
    )
)
def test_an_entry_gives_what_protobuf_reads_of_it(messages) -> None:
    found = opened(*(entry(payload, **fields) for payload, fields in messages))
    for number, (payload, fields) in enumerate(messages):
        metadata = MessageMetadata(**fields)
        assert found.values[number] == (None if metadata.null_value else payload)
        assert found.keys[number] == key_of(metadata)
        assert found.properties[number] == properties_of(metadata)
        assert found.schema_versions[number] == metadata.schema_version
        ordering = metadata.ordering_key if metadata.HasField("ordering_key") else None
        assert found.ordering_keys[number] == ordering
        assert (found.publish_ms[number], found.event_ms[number]) == (metadata.publish_time, metadata.event_time)
    assert found.entry_ids == list(range(len(messages)))


@given(st.data())
def test_a_changed_byte_never_goes_unnoticed(data) -> None:
    """CRC-32C detects every change within 32 bits. (From the sixth byte on, a byte is covered or is the checksum.)"""
    original = data.draw(
        st.sampled_from([entry(b"x" * 50, partition_key="k"), batch(b"a", b"b"), batch(b"a" * 99, compression="zstd")])
    )
    changed = bytearray(original)
    changed[data.draw(st.integers(2, len(original) - 1))] ^= data.draw(st.integers(1, 255))
    refuses(CorruptEntryError, lambda: opened(bytes(changed)), r"^entry 5:0: ")


def test_entries_with_broker_metadata_and_entries_without_a_checksum_are_opened() -> None:
    plain = entry(b"a", partition_key="k")
    broker = BrokerEntryMetadata(broker_timestamp=5, index=7).SerializeToString()
    prefix = b"\x0e\x02" + struct.pack("!I", len(broker)) + broker
    assert opened(prefix + plain, plain[6:], prefix + plain[6:], prefix + batch(b"b")).values == [
        b"a",
        b"a",
        b"a",
        b"b",
    ]
    refuses(CorruptEntryError, lambda: opened(prefix + plain[:-1] + b"b"), "checksum")


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x0e",
        b"\x0e\x01",
        b"\x0e\x02\xff\xff\xff\xff",
        b"\x00" * 9,
        entry()[:12],
        b"\x0e\x01" + bytes(4) + b"\xff" * 8,
    ],
)
def test_an_entry_that_ends_early_is_corrupt(broken: bytes) -> None:
    refuses(CorruptEntryError, lambda: opened(broken), r"^entry 5:0: ")


def test_zeros_are_not_taken_for_a_message() -> None:
    refuses(CorruptEntryError, lambda: opened(bytes(100)), "no producer name")


def test_metadata_that_is_none_is_corrupt() -> None:
    body = struct.pack("!I", 3) + b"\xff\xff\xff" + b"payload"
    with pytest.raises(CorruptEntryError, match="unreadable metadata"):
        opened(b"\x0e\x01" + struct.pack("!I", crc32c(body)) + body)


def test_markers_of_servers_are_left_out() -> None:
    assert opened(entry(b"a"), entry(b"marker", marker_type=0), entry(b"m", marker_type=21), entry(b"b")).entry_ids == [
        0,
        3,
    ]


def test_an_encrypted_entry_is_told_as_such() -> None:
    secret = entry(b"?", encryption_keys=[{"key": "k", "value": b"v"}], encryption_algo="AES")
    refuses(EncryptedEntryError, lambda: opened(entry(b"a"), secret), r"entry 5:1: its payload is encrypted \(AES\)")


def test_a_batch_that_would_become_too_large_is_refused() -> None:
    large = batch(bytes(2000), compression="zstd")
    assert opened(large, uncompressed_max=3000).values == [bytes(2000)]
    refuses(CorruptEntryError, lambda: opened(large, uncompressed_max=1000), r"entry 5:0: .* the limit is 1000")


def test_a_codec_that_is_not_known_is_told_and_its_bytes_are_not_taken_for_the_payload() -> None:
    original = entry(b"squeezed", compression=4, uncompressed_size=100)
    body = original[6:].replace(b"\x40\x04\x48\x64", b"\x40\x06\x48\x64")
    with pytest.raises(CorruptEntryError, match="unknown compression 6"):
        opened(b"\x0e\x01" + struct.pack("!I", crc32c(body)) + body)


def test_after_an_error_nothing_of_the_call_stays() -> None:
    opener, into = Opener(), Messages()
    opener.open(deliveries(entry(b"a"), batch(b"b", b"c")), into)
    size = into.size_bytes
    damaged = bytearray(entry(b"z"))
    damaged[-1] ^= 1
    for bad in (bytes(damaged), batch(b"x")[:-1], entry(b"x", num_messages_in_batch=2)):
        with pytest.raises(CorruptEntryError):
            opener.open(deliveries(entry(b"d"), batch(b"e"), bad), into)
        consistent(into)
        assert (into.values, into.size_bytes) == ([b"a", b"b", b"c"], size)


def test_a_part_of_the_deliveries_can_be_opened() -> None:
    into = Messages()
    got = deliveries(entry(b"a"), batch(b"b"), entry(b"c"), entry(b"d"), entry(b"e"))
    Opener().open(got, into, first=1, stop=4)
    assert (into.values, into.entry_ids) == ([b"b", b"c", b"d"], [1, 2, 3])
    Opener().open(got, into, first=4)
    assert (into.values, into.entry_ids) == ([b"b", b"c", b"d", b"e"], [1, 2, 3, 4])
    Opener().open(got, into, first=5)
    consistent(into)


def test_sizes_count_everything_uncompressed_and_are_gone_when_cleared() -> None:
    found = opened(entry(b"x" * 1000), batch(b"y" * 5000, compression="zstd"), batch(b"z" * 1000))
    assert 7000 < found.size_bytes < 7200
    found.clear()
    assert (len(found), found.size_bytes) == (0, 0)
    consistent(found)


def piece(chunk: int, payload: bytes, chunks: int = 3, **fields) -> bytes:
    return entry(payload, uuid="p-1", chunk_id=chunk, num_chunks_from_msg=chunks, **fields)


def test_a_chunked_message_stands_where_its_last_piece_stands() -> None:
    found = opened(
        piece(0, b"1"),
        entry(b"a"),
        piece(1, b"2"),
        batch(b"b"),
        piece(2, b"3", partition_key="k", publish_time=8),
        entry(b"c"),
    )
    assert found.values == [b"a", b"b", b"123", b"c"]
    assert (found.entry_ids, found.keys) == ([1, 3, 4, 5], [None, None, b"k", None])
    assert (found.batch_indexes, found.batch_sizes) == ([-1, 0, -1, -1], [0, 1, 0, 0])
    assert found.publish_ms[2] == 8


def test_a_chunked_message_is_compressed_as_a_whole() -> None:
    text = b"compressed in one, cut in three " * 20
    for name, kind in KINDS.items():
        whole = compress(kind, text)
        fields = {"compression": kind, "uncompressed_size": len(text)} if name != "none" else {}
        third = len(whole) // 3
        parts = whole[:third], whole[third : 2 * third], whole[2 * third :]
        assert opened(*(piece(number, part, **fields) for number, part in enumerate(parts))).values == [text]


def test_gaps_have_their_rows_and_are_filled_from_entries_before_the_range() -> None:
    opener, into = Opener(), Messages()
    before = deliveries(entry(b"x"), piece(0, b"1"), entry(b"y", uuid="q", chunk_id=0, num_chunks_from_msg=2), ledger=4)
    again = entry(b"Y", uuid="q", chunk_id=1, num_chunks_from_msg=2, partition_key="k")
    got = deliveries(entry(b"a"), piece(1, b"2"), piece(2, b"3"), entry(b"b"), again, entry(b"c"))
    gaps = opener.open(got, into)
    assert [(gap.uuid, gap.row, gap.missing_chunk_ids) for gap in gaps] == [("p-1", 1, [0]), ("q", 3, [0])]
    assert into.values == [b"a", None, b"b", None, b"c"]
    assert opener.look_back(deliveries(entry(b"z"), ledger=4)) == gaps
    assert opener.look_back(before) == []
    assert opener.complete(gaps, into) == []
    assert into.values == [b"a", b"123", b"b", b"yY", b"c"]
    assert into.entry_ids == [0, 2, 3, 4, 5]
    assert into.keys[3] == b"k"
    consistent(into)


def test_rows_of_gaps_that_stay_open_are_taken_out_and_the_others_stay_right() -> None:
    def part(uuid: str, chunk: int, payload: bytes) -> bytes:
        return entry(payload, uuid=uuid, chunk_id=chunk, num_chunks_from_msg=2)

    opener, into = Opener(), Messages()
    gaps = opener.open(deliveries(*(part(uuid, 1, uuid.encode()) for uuid in "abcd"), entry(b"e")), into)
    # nothing of b exists, and all of c, so the part of c in the range only repeats it
    opener.look_back(
        deliveries(part("a", 0, b"A"), part("c", 0, b"C"), part("c", 1, b"c"), part("d", 0, b"D"), ledger=4)
    )
    lost = opener.complete(gaps, into)
    assert [gap.uuid for gap in lost] == ["b"]
    assert (into.values, into.entry_ids) == ([b"Aa", b"Dd", b"e"], [0, 3, 4])
    consistent(into)


def test_gaps_of_several_calls_into_the_same_messages_are_completed_together() -> None:
    opener, into = Opener(), Messages()
    got = deliveries(piece(2, b"3"), entry(b"a"), piece(1, b"Y", 2, producer_name="q"))
    gaps = opener.open(got, into, stop=1) + opener.open(got, into, first=1)
    opener.look_back(deliveries(piece(0, b"1"), piece(1, b"2"), piece(0, b"X", 2, producer_name="q"), ledger=4))
    assert opener.complete(gaps, into) == []
    assert into.values == [b"123", b"a", b"XY"]


def test_what_cannot_be_read_before_the_range_does_not_matter() -> None:
    opener, into = Opener(), Messages()
    gaps = opener.open(deliveries(piece(1, b"2", 2)), into)
    secret = entry(b"?", encryption_keys=[{"key": "k", "value": b"v"}])
    nonsense = entry(b"?", uuid="q", chunk_id=9, num_chunks_from_msg=2)
    assert opener.look_back(deliveries(b"junk", secret, nonsense, ledger=4)) == gaps
    assert opener.look_back(deliveries(piece(0, b"1", 2), ledger=3)) == []
    assert opener.complete(gaps, into) == []
    assert into.values == [b"12"]


def test_a_chunked_tombstone_is_one() -> None:
    assert opened(piece(0, b"", 2, null_value=True), piece(1, b"", 2, null_value=True)).values == [None]
    opener, into = Opener(), Messages()
    gaps = opener.open(deliveries(piece(1, b"", 2, null_value=True)), into)
    opener.look_back(deliveries(piece(0, b"", 2, null_value=True), ledger=4))
    assert (opener.complete(gaps, into), into.values) == ([], [None])


def test_one_chunk_of_one_is_a_plain_message() -> None:
    assert opened(piece(0, b"all", 1)).values == [b"all"]


def test_messages_that_the_original_stored_are_opened() -> None:
    """Topic orders of the golden files: written by the official client, stored by Apache Pulsar."""
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    ledgers = [ledger["ledgerId"] for ledger in manifest["internalStats"]["orders"]["ledgers"]]
    lines = [json.loads(line) for line in (GOLDEN / "entries-running.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["ledger"] in ledgers]
    entries = [bytes.fromhex(line["hex"]) for line in lines]
    got = Deliveries([line["ledger"] for line in lines], [line["entry"] for line in lines], entries)
    into = Messages()
    assert Opener().open(got, into) == []
    consistent(into)
    assert into.values == [
        *(b"batched-%d" % number for number in range(25)),
        *(b"single-%d" % number for number in range(20)),
        *[b"compressed " * 40] * 4,
    ]
    assert into.keys == [b"k%d" % (number % 3) for number in (*range(25), *range(20))] + [None] * 4
    assert into.event_ms == [0] * 25 + [1700000000000 + number for number in range(20)] + [0] * 4
    single = [[("n", str(number))] for number in range(20)]
    assert into.properties == [[("n", str(number))] if number % 2 else [] for number in range(25)] + single + [[]] * 4
    ids = [id_ for step in manifest["workload"] for id_ in step.get("ids", [step.get("id")]) if id_][:49]
    assert ids == [
        f"({ledger},{entry_id},-1,{index})"
        for ledger, entry_id, index in zip(into.ledger_ids, into.entry_ids, into.batch_indexes, strict=True)
    ]
    assert into.batch_sizes == [5] * 25 + [0] * 24
