"""Runs have the rows that their entries give when they are opened one by one, or there is no run. Covers
reading/field_walk, reading/row_run and reading/run_columns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError
from quire.client.unpacking import Messages, Opener
from quire.spark.options.parse import ON_REQUEST
from quire.spark.reading import row_run
from quire.spark.reading.columns import ROWS_MAX, Columns
from quire.spark.reading.range_rows import RangeRows
from quire.spark.reading.row_run import RowRun, batch_run, plain_run
from quire.spark.reading.schema import NAMES
from quire.wire.pulsar.PulsarApi_pb2 import SingleMessageMetadata
from tests.support.pulsar_frames import entry, entry_of, metadata
from tests.support.refusals import refuses
from tests.unit.spark.entries import chunk
from tests.unit.spark.reading.planned import TOPIC, read, work

COLUMNS = Columns((*NAMES, *ON_REQUEST), TOPIC)
LEDGER, FIRST = 300, 120
"""Ids of entries from here on need one byte more."""
VERSION = (7).to_bytes(8, "big")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs have few rows."""
    monkeypatch.setattr(row_run, "ROWS_MIN", 1)
    monkeypatch.setattr(row_run, "FEW_ROWS", 1)


def plain(entries: Sequence[bytes]) -> RowRun | None:
    return plain_run(LEDGER, FIRST, [memoryview(each) for each in entries])


def batches(entries: Sequence[bytes]) -> RowRun | None:
    return batch_run(LEDGER, FIRST, entries, Opener())


def one_by_one(entries: Sequence[bytes]) -> pa.Table:
    messages = Messages()
    ids = list(range(FIRST, FIRST + len(entries)))
    assert Opener().open(Deliveries([LEDGER] * len(entries), ids, list(entries)), messages) == []
    return pa.Table.from_batches(COLUMNS.batches(messages))


def agrees(entries: Sequence[bytes], make: Callable[[Sequence[bytes]], RowRun | None]) -> bool:
    """Return whether there is a run; its rows are compared with those of the entries."""
    run = make(entries)
    found = None if run is None else COLUMNS.batches_of_run(run)
    if found is None:
        return False
    wanted = one_by_one(entries)
    table = pa.Table.from_batches(found)
    table.validate(full=True)
    for name in table.schema.names:
        assert table[name].to_pylist() == wanted[name].to_pylist(), name
    return True


def usual_fields(rng: Random, *, versioned: bool) -> dict[str, Any]:
    """Return fields of a message, each of which it may lack."""
    fields: dict[str, Any] = {"sequence_id": rng.choice([0, 5, 127, 128, 300, 2**40])}
    names = rng.choice([[], ["n"], ["n", "unit"], ["n", "unit", "é"]])
    fields["properties"] = [{"key": name, "value": rng.choice(["", "1", "käse", "v" * 90])} for name in names]
    if rng.random() < 0.7:
        fields["partition_key"] = rng.choice(["", "k", "key-1", "k" * 127])
    if rng.random() < 0.4:
        fields["event_time"] = rng.choice([0, 1, 1_700_000_000_123])
    if rng.random() < 0.3:
        fields["partition_key_b64_encoded"] = False
    if rng.random() < 0.3:
        fields["ordering_key"] = rng.choice([b"", b"o", b"\x00\xff"])
    if versioned:
        fields["publish_time"] = rng.choice([1, 1_700_000_000_000, 1_700_000_000_999])
        if rng.random() < 0.5:
            fields["schema_version"] = rng.choice([VERSION, b"short"])
        if rng.random() < 0.3:
            fields["uncompressed_size"] = 5
    return fields


def value(rng: Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 5, 5, 5, 200]))


def batch(messages: Sequence[tuple[dict[str, Any], bytes]], **fields: Any) -> bytes:
    parts = []
    for single_fields, payload in messages:
        packed = SingleMessageMetadata(payload_size=len(payload), **single_fields).SerializeToString()
        parts += [struct.pack("!I", len(packed)), packed, payload]
    return entry(b"".join(parts), num_messages_in_batch=len(messages), **fields)


@pytest.mark.parametrize("seed", range(30))
def test_plain_messages_with_any_of_the_usual_fields_are_a_run(seed: int) -> None:
    rng = Random(seed)
    assert agrees([entry(value(rng), **usual_fields(rng, versioned=True)) for _ in range(rng.randint(1, 60))], plain)


@pytest.mark.parametrize("seed", range(30))
def test_batches_of_messages_with_any_of_the_usual_fields_are_a_run(seed: int) -> None:
    rng = Random(seed)
    made = []
    for number in range(rng.randint(1, 4)):
        messages = [(usual_fields(rng, versioned=False), value(rng)) for _ in range(rng.randint(1, 30))]
        more = {"schema_version": VERSION} if rng.random() < 0.5 else {}
        made.append(batch(messages, publish_time=1_700_000_000_000 + number, **more))
    assert agrees(made, batches)


def test_messages_of_one_size_are_found_at_once_and_end_where_another_size_begins() -> None:
    sizes = [20] * 100 + [21] * 3 + [20] * 50 + [0] * 40
    messages = [
        ({"partition_key": str(number % 10)}, bytes([number % 256]) * size) for number, size in enumerate(sizes)
    ]
    assert agrees([batch(messages), batch(messages[::-1])], batches)


def test_a_value_that_looks_like_the_next_message_is_none() -> None:
    # The sizes fit at the place where the next message would be, but it is the middle of a value.
    single = SingleMessageMetadata(payload_size=6, sequence_id=1).SerializeToString()
    looks = struct.pack("!I", len(single)) + single
    stride = len(looks) + 6
    large = (looks + bytes(6)) * 9
    messages = [({"sequence_id": 1}, b"abcdef"), ({"sequence_id": 1}, b"ghijkl"), ({"sequence_id": 1}, large)]
    assert stride == len(batch(messages[:2])) - len(batch(messages[:1]))
    agrees([batch(messages)], batches)
    agrees([batch([*messages, *messages[:2] * 10])], batches)


USUAL = entry(b"usual", partition_key="k")
PLAIN_ODD = {
    "batch": batch([({}, b"a")]),
    "chunk": chunk(b"piece", 0, 2),
    "marker": entry(b"", marker_type=10),
    "transaction": entry(b"t", txnid_least_bits=1, txnid_most_bits=0),
    "tombstone": entry(b"", null_value=True),
    "compressed": entry(b"c", compression=1, uncompressed_size=1),
    "encrypted": entry(b"e", encryption_keys=[{"key": "k", "value": b"v"}]),
    "a key in base64": entry(b"b", partition_key="a2V5", partition_key_b64_encoded=True),
    "a delay": entry(b"d", deliver_at_time=5),
    "a field in another order": entry_of(metadata() + b"\x32\x01k" + b"\x22\x06\x0a\x01n\x12\x01v"),
    "a key twice": entry_of(metadata() + b"\x32\x01k\x32\x01l"),
    "a long key": entry(b"l", partition_key="k" * 128),
    "a property twice": entry(b"p", properties=[{"key": "n", "value": "1"}, {"key": "n", "value": "2"}]),
    "a property that is no text": entry_of(metadata() + b"\x22\x06\x0a\x01n\x12\x01\xff"),
    "a value before its name": entry_of(metadata() + b"\x22\x06\x12\x01v\x0a\x01n"),
    "a property without a value": entry_of(metadata() + b"\x22\x03\x0a\x01n"),
    "a property with more": entry_of(metadata() + b"\x22\x08\x0a\x01n\x12\x01v\x18\x01"),
    "a property whose value ends before it": entry_of(metadata() + b"\x22\x07\x0a\x01n\x12\x01v\x00"),
    "a long property": entry(b"p", properties=[{"key": "n", "value": "v" * 130}]),
    # Read with a size of one byte, the key would end before its last one, which then looks like the tag of a number.
    "a long key whose end looks like a field": entry(
        b"l", partition_key="k" * 127 + "H", schema_version=b"\x05\x82\x01\x5c" + bytes(92)
    ),
    "a time that does not fit": entry(b"t", publish_time=1 << 62),
    "an event time that does not fit": entry(b"t", event_time=1 << 62),
    "no publish time": entry_of(b"\x0a\x01p\x10\x00"),
    "metadata of nothing": entry_of(b""),
    "no checksum": USUAL[6:],
    "a wrong checksum": USUAL[:-1] + b"L",
    "metadata behind its end": USUAL[:6] + b"\x00\x00\x01\x00" + USUAL[10:],
    "a text behind its end": entry_of(metadata() + b"\x32\x7fk", b"v" * 200),
    "a number behind its end": entry_of(metadata() + b"\x60\x80", b"\x01"),
    "an end": USUAL[:9],
    "nothing": b"",
}


@pytest.mark.parametrize("name", PLAIN_ODD)
def test_an_unusual_message_is_left_to_protobuf(name: str) -> None:
    for place in (0, 1, 2):
        entries = [USUAL, USUAL]
        entries.insert(place, PLAIN_ODD[name])
        run = plain(entries)
        assert run is None or COLUMNS.batches_of_run(run) is None


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"compacted_out": True}, {}),
        ({"null_value": True}, {}),
        ({"partition_key": "a2V5", "partition_key_b64_encoded": True}, {}),
        ({"properties": [{"key": "n", "value": "1"}, {"key": "n", "value": "2"}]}, {}),
        ({"event_time": 1 << 62}, {}),
        ({}, {"marker_type": 10}),
        ({}, {"publish_time": 1 << 63}),
    ],
)
def test_a_batch_with_an_unusual_message_is_left_to_protobuf(fields: dict[str, Any], more: dict[str, Any]) -> None:
    usual: list[tuple[dict[str, Any], bytes]] = [({"partition_key": "k"}, b"v")] * 20
    for place in (0, 10, 20):
        messages = [*usual[:place], (fields, b""), *usual[place:]]
        assert not agrees_or_refuses([batch(usual), batch(messages, **more)])


def agrees_or_refuses(entries: Sequence[bytes]) -> bool:
    run = batches(entries)
    return run is not None and COLUMNS.batches_of_run(run) is not None


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_batch_that_its_messages_do_not_fill_is_left_to_the_one_by_one_opening(cut: int) -> None:
    whole = batch([({}, b"value")] * 20)
    payload = whole[10 + int.from_bytes(whole[6:10], "big") :]
    assert batches([whole]) is not None
    for changed in (payload[:-cut], payload + payload[:cut]):
        assert batches([entry(changed, num_messages_in_batch=20)]) is None


def test_compressed_batches_are_a_run() -> None:
    import zlib

    from quire.client.compression import KINDS

    whole = batch([({"partition_key": "k"}, b"value")] * 20)
    payload = whole[10 + int.from_bytes(whole[6:10], "big") :]
    more = {"compression": KINDS["zlib"], "uncompressed_size": len(payload), "num_messages_in_batch": 20}
    assert agrees([whole, entry(zlib.compress(payload), **more)], batches)


def test_a_run_of_many_rows_is_cut_into_batches() -> None:
    run = batches([batch([({}, b"")] * (ROWS_MAX // 2)) for _ in range(5)])
    assert run is not None
    assert [each.num_rows for each in COLUMNS.batches_of_run(run) or ()] == [8333, 8333, 8334]


def test_few_rows_of_few_bytes_are_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_run, "FEW_ROWS", 4)
    monkeypatch.setattr(row_run, "FEW_BYTES", 1000)
    assert plain([USUAL] * 3) is None
    assert plain([USUAL] * 4) is not None
    assert plain([entry(bytes(400))] * 3) is not None
    monkeypatch.setattr(row_run, "BYTES_MAX", 1000)
    assert plain([entry(bytes(400))] * 3) is None


def test_a_range_of_batches_is_read_whole_from_its_start_within_one_of_them_on() -> None:
    made = [batch([({}, b"%d-%d" % (number, index)) for index in range(20)]) for number in range(30)]
    fed = Deliveries([5] * 30, list(range(30)), made)
    rows = [b"%d-%d" % (number, index) for number in range(30) for index in range(20)]
    assert read(work((5, 0, 29)), fed) == rows
    assert read(work((5, 0, 29), start=7), fed) == rows[7:]
    assert read(work((5, 0, 12)), fed) == rows[:260]


def test_a_run_from_bookies_is_read_from_the_start_of_its_range_on() -> None:
    for start, wanted in ((0, [b"a", b"b", b"c"]), (1, [b"b", b"c"])):
        run = plain_run(5, 0, [entry(b"a"), entry(b"b"), entry(b"c")])
        assert run is not None
        rows = RangeRows(work((5, 0, 2), start=start), Columns(["value"], TOPIC), fail_on_data_loss=True)
        rows.give(run)
        rows.advance()
        assert rows.done
        assert [row["value"] for batch in rows.ready for row in batch.to_pylist()] == wanted
        assert rows.rows == len(wanted)


def test_a_damaged_batch_between_others_is_named() -> None:
    made = [batch([({}, b"value")] * 20) for _ in range(5)]
    made[3] = made[3][:-1] + b"E"
    refuses(CorruptEntryError, lambda: read(work((5, 0, 4)), Deliveries([5] * 5, list(range(5)), made)), "5:3")
