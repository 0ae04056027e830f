"""Round trip of packed messages: read back by protobuf, field by field, and by the Opener."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.batches import split
from quire.client.compression import KINDS, decompress
from quire.client.deliveries import Deliveries
from quire.client.packing import Packed, pack
from quire.client.routing import key_text
from quire.client.unpacking import Messages, Opener
from quire.wire.pulsar.metadata import metadata_span, read_metadata
from quire.wire.pulsar.PulsarApi_pb2 import SingleMessageMetadata
from tests.support.refusals import refuses

keys = st.one_of(
    st.none(), st.sampled_from([b"a", b"b", "a", "", b"\xff"]), st.binary(max_size=5), st.text(max_size=200)
)
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=30), st.binary(min_size=200, max_size=400)),
        keys,
        st.lists(st.tuples(st.text(max_size=9), st.text(max_size=200)), max_size=2),
        st.integers(0, 1 << 45),
    ),
    max_size=12,
)


def encoded(packed: list[Packed]) -> Deliveries:
    entries = [each.encode("producer-1", number, 1763737000123) for number, each in enumerate(packed)]
    return Deliveries([3] * len(entries), list(range(len(entries))), entries)


def opened(packed: list[Packed]) -> Messages:
    into = Messages()
    assert Opener().open(encoded(packed), into) == []
    return into


def raw(key: bytes | str | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


@given(rows, st.booleans(), st.sampled_from(list(KINDS)), st.integers(1, 5), st.integers(1, 500))
def test_what_is_packed_is_opened_the_same_in_order_within_each_key(
    given_rows, batch: bool, compression: str, messages_max: int, bytes_max: int
) -> None:
    values, row_keys, properties, event_ms = ([row[column] for row in given_rows] for column in range(4))
    packed = pack(
        values, row_keys, properties, event_ms,
        batch=batch, compression=compression, batch_messages_max=messages_max, batch_bytes_max=bytes_max,
    )  # fmt: skip
    found = opened(packed)
    assert sum(each.count for each in packed) == len(values) == len(found)
    expected: dict[bytes | None, list[Any]] = defaultdict(list)
    actual: dict[bytes | None, list[Any]] = defaultdict(list)
    for value, key, pairs, event in given_rows:
        expected[raw(key)].append((value, pairs, event))
    for number, key in enumerate(found.keys):
        actual[key].append((found.values[number], found.properties[number], found.event_ms[number]))
    assert actual == expected
    if not batch:
        assert found.keys == [raw(key) for key in row_keys]
    assert found.publish_ms == [1763737000123] * len(values)


@given(rows, st.sampled_from(list(KINDS)))
def test_a_batch_has_one_key_only_which_stands_in_its_metadata_too(given_rows, compression: str) -> None:
    packed = pack([row[0] for row in given_rows], [row[1] for row in given_rows], compression=compression)
    for number, entry in enumerate(encoded(packed).entries):
        metadata = read_metadata(entry)
        assert metadata.IsInitialized()
        assert (metadata.producer_name, metadata.sequence_id) == ("producer-1", number)
        assert metadata.HasField("num_messages_in_batch") == (packed[number].count > 1)
        if packed[number].count > 1:
            assert metadata.num_messages_in_batch == packed[number].count
            payload = entry[metadata_span(entry)[1] :]
            payload = decompress(metadata.compression, payload, metadata.uncompressed_size, size_max=1 << 20)
            columns: tuple[list[Any], ...] = ([], [], [], [])
            split(payload, packed[number].count, *columns)
            text, encoded_key = key_text(columns[1][0]) if columns[1][0] is not None else ("", False)
            assert len(set(columns[1])) == 1
            assert (metadata.partition_key, metadata.partition_key_b64_encoded) == (text, encoded_key)
            assert metadata.HasField("partition_key") == (columns[1][0] is not None)


def test_the_size_of_a_packed_entry_is_its_bytes_without_name_and_numbers() -> None:
    for each in pack([b"x" * 500] * 3 + [b"y"], ["k"] * 3 + [None]):
        entry = each.encode("producer-1", 5, 1763737000123)
        assert 0 < len(entry) - each.size < 100


def test_batches_keep_to_their_bounds() -> None:
    packed = pack([b"x" * 95] * 10, batch_messages_max=4)
    assert [each.count for each in packed] == [4, 4, 2]
    packed = pack([b"x" * 95] * 10, batch_bytes_max=303)  # each has 101 bytes with its metadata
    assert [each.count for each in packed] == [3, 3, 3, 1]
    packed = pack([b"x" * 95, b"y" * 1000, b"z" * 95, b"z"], batch_bytes_max=303)
    assert [each.count for each in packed] == [1, 1, 2]


def test_one_message_is_sent_as_it_is_and_not_as_a_batch() -> None:
    (packed,) = pack([b"v"], ["k"])
    assert not read_metadata(packed.encode("p", 0, 1)).HasField("num_messages_in_batch")
    assert packed.payload == b"v"


def test_key_less_messages_share_batches_between_keyed_ones() -> None:
    packed = pack([b"1", b"2", b"3", b"4"], [None, "k", None, b"k"])
    assert [each.count for each in packed] == [2, 2]


def test_what_does_not_become_smaller_is_not_compressed() -> None:
    (small,) = pack([b"abc"], compression="zstd")
    assert not read_metadata(small.encode("p", 0, 1)).compression
    (large,) = pack([b"abc" * 100], compression="zstd")
    metadata = read_metadata(large.encode("p", 0, 1))
    assert (metadata.compression, metadata.uncompressed_size) == (KINDS["zstd"], 300)


def test_a_message_above_the_limit_is_refused_with_its_size_and_the_limit() -> None:
    with pytest.raises(ValueError, match=r"message 1 has 1000 bytes .* the limit is 1000 bytes"):
        pack([b"v", b"x" * 1000], message_size_max=1000)
    refuses(ValueError, lambda: pack([b"x" * 1000], batch=False, message_size_max=1000), "message 0 has 1000 bytes")
    (fits,) = pack([b"x" * 744], message_size_max=1000)
    assert len(fits.encode("a-producer-with-a-name-of-some-length-" + "x" * 100, 1 << 63, 1 << 50)) < 1000


def test_a_batch_stays_below_the_limit_of_a_message() -> None:
    packed = pack([b"x" * 100] * 20, message_size_max=1000, batch_bytes_max=1 << 20)
    assert all(each.size + 256 <= 1000 for each in packed)
    assert sum(each.count for each in packed) == 20


def test_a_large_message_that_compression_makes_small_is_sent() -> None:
    (packed,) = pack([b"x" * 5000], compression="lz4", message_size_max=1000)
    assert packed.size < 200
    assert opened([packed]).values == [b"x" * 5000]


def test_columns_left_out_are_columns_without_anything() -> None:
    found = opened(pack([b"a", b"b"]))
    assert (found.values, found.keys, found.event_ms, found.properties) == ([b"a", b"b"], [None] * 2, [0] * 2, [[]] * 2)
    assert pack([]) == []
    assert pack([], [], [], [], batch=False) == []
    assert opened(pack([b"a"], [None], [None], [None])).event_ms == [0]


def test_what_cannot_be_sent_is_refused() -> None:
    refuses(ValueError, lambda: pack([b"v"], compression="brotli"), "brotli")
    refuses(ValueError, lambda: pack([b"v", b"w"], event_ms=[1, -5]), "message 1 has the event time -5 ms")


metadata_rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=9)),
        st.sampled_from([None, b"a", b"b", b"\xff"]),
        st.sampled_from([None, b"", b"o", b"p" * 200]),
        st.sampled_from([0, None, 1763737000123]),
    ),
    max_size=12,
)


@given(metadata_rows, st.booleans(), st.booleans(), st.binary(max_size=9))
def test_ordering_key_time_of_delivery_and_schema_are_in_the_metadata(
    given_rows, batch: bool, in_order: bool, version: bytes
) -> None:
    values, row_keys, ordering, deliver_ms = ([row[column] for row in given_rows] for column in range(4))
    packed = pack(
        values, row_keys,
        ordering_keys=ordering, deliver_ms=deliver_ms, schema_version=version, batch=batch, in_order=in_order,
    )  # fmt: skip
    assert opened(packed).values == values, "all in order"
    assert opened(packed).schema_versions == [version] * len(values)
    row = 0
    for number, entry in enumerate(encoded(packed).entries):
        metadata = read_metadata(entry)
        for at in range(row, row + packed[number].count):
            assert (metadata.ordering_key, metadata.HasField("ordering_key")) == (
                ordering[at] or b"",
                ordering[at] is not None,
            )
            assert metadata.deliver_at_time == (deliver_ms[at] or 0)
        if metadata.HasField("num_messages_in_batch"):
            payload = entry[metadata_span(entry)[1] :]
            size = int.from_bytes(payload[:4], "big")
            single = SingleMessageMetadata.FromString(payload[4 : 4 + size])
            assert single.ordering_key == metadata.ordering_key
        assert packed[number].count == 1 or not metadata.deliver_at_time, "a delayed message is in no batch"
        row += packed[number].count


def test_messages_at_once_of_one_ordering_key_share_a_batch() -> None:
    packed = pack([b"v"] * 6, ordering_keys=[b"a", b"a", b"b", b"b", b"b", b"b"], deliver_ms=[0, 0, 0, 9, 0, 0])
    assert [each.count for each in packed] == [2, 1, 1, 2]


def test_a_time_of_delivery_before_1970_is_refused() -> None:
    refuses(ValueError, lambda: pack([b"v"], deliver_ms=[-1]), "time of delivery -1 ms")
