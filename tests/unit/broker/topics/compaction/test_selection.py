"""Messages that compaction keeps: broker/topics/compaction/{units,selection,raw_message}.py."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.topics.compaction import raw_message
from broker.topics.compaction.selection import OPEN_MESSAGES_MAX, PARTS, Bits, Selection, TooManyKeysError
from broker.topics.compaction.units import DROPPED, KEPT, ChunkPlace, MessageUnit, last_message_in, rewritten, units_of
from quire.client.compression import KINDS
from quire.ledger.position import Position
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.metadata import metadata_span, read_metadata
from quire.wire.pulsar.PulsarApi_pb2 import EncryptionKeys
from tests.support.pulsar_frames import entry
from tests.unit.broker.topics.compaction.batches import Message, batch, messages_in


def compacted(entries: Sequence[bytes], *, keys_max: int = 100, retain_null_key: bool = False) -> list[bytes]:
    """Compact entries as the compactor does; return what is left of them."""
    selection = Selection(keys_max)
    while selection.begin_read():
        for each in entries:
            selection.add(units_of(each, retain_null_key=retain_null_key))
    found = []
    unit = 0
    for each in entries:
        count = len(units_of(each, retain_null_key=retain_null_key))
        made = rewritten(each, [selection.kept[number] for number in range(unit, unit + count)])
        unit += count
        if made is not None:
            found.append(bytes(made))
    assert selection.units == unit
    assert selection.kept.count == sum(selection.kept[number] for number in range(unit))
    return found


def single(key: str | None, value: bytes, **metadata: object) -> bytes:
    return entry(value, **({} if key is None else {"partition_key": key}), **metadata)


def test_of_each_key_the_newest_message_stays_and_an_empty_one_deletes_the_key() -> None:
    first, second = single("a", b"1"), single("b", b"2")
    newer, deletes = single("a", b"3"), single("b", b"")
    assert compacted([first, second]) == [first, second]
    assert compacted([first, second, newer]) == [second, newer]
    assert compacted([first, second, newer, deletes]) == [newer]
    assert compacted([deletes, second]) == [second]
    assert compacted([first, single("a", b"x", null_value=True)]) == []


def test_a_deleted_key_takes_no_memory() -> None:
    selection = Selection(100)
    selection.begin_read()
    for _ in range(3):
        selection.add([MessageUnit(str(number), 1) for number in range(50)])
        assert selection.keys == 50
        selection.add([MessageUnit(str(number), 0) for number in range(50)])
        assert selection.keys == 0
    assert selection.kept.count == 0


def test_messages_without_a_key_are_dropped_unless_they_are_to_be_kept() -> None:
    entries = [single(None, b"1"), batch([(None, b"2"), ("a", b"3")]), single("", b"4")]
    [left, last] = compacted(entries)
    assert (messages_in(left), last) == ([None, ("a", b"3")], entries[2])
    assert compacted(entries, retain_null_key=True) == entries


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_keeps_its_places_and_its_compression(kind: str) -> None:
    entries = [batch([("a", b"1" * 50), ("b", b"2"), ("a", b"3")], kind, sequence_id=7), batch([("b", b"4")], kind)]
    [left, last] = compacted(entries)
    assert messages_in(left) == [None, None, ("a", b"3")]
    metadata = read_metadata(left)
    assert (metadata.sequence_id, metadata.num_messages_in_batch, metadata.compression) == (7, 3, KINDS[kind])
    assert (last, last_message_in(left), last_message_in(last)) == (entries[1], 2, 0)
    # Compacted once more: what was left out stays so.
    assert compacted([left, last, batch([("a", b"5")])])[0] == last
    assert messages_in(compacted([left, last, batch([("c", b"5")])])[0]) == [None, None, ("a", b"3")]


def test_the_last_message_of_a_batch_is_the_last_one_that_was_not_left_out() -> None:
    [left, _] = compacted([batch([("a", b"1"), ("b", b"2")]), single("b", b"3")])
    assert last_message_in(left) == 0
    assert last_message_in(single("a", b"1")) == -1
    assert last_message_in(batch([("a", b"1"), ("b", b"2")], encryption_keys=[ENCRYPTED])) == 1
    assert last_message_in(b"\xff") == -1


ENCRYPTED = EncryptionKeys(key="k", value=b"v")


def test_an_encrypted_batch_is_kept_whole_and_an_encrypted_message_goes_by_its_key() -> None:
    whole = batch([("a", b"1"), ("b", b"2")], encryption_keys=[ENCRYPTED], partition_key="a")
    message = single("a", b"secret", encryption_keys=[ENCRYPTED], uncompressed_size=3)
    deletes = single("a", b"16 bytes of tag.", encryption_keys=[ENCRYPTED], uncompressed_size=0)
    newer = single("a", b"2")
    assert compacted([whole, message, newer]) == [whole, newer]
    assert compacted([whole, message, deletes]) == [whole]


def test_an_unreadable_batch_is_kept_and_what_no_consumer_gets_is_dropped() -> None:
    broken = entry(b"\xff\xff\xff\xffx", num_messages_in_batch=2)
    bomb = entry(b"x", num_messages_in_batch=1, compression=KINDS["zlib"], uncompressed_size=1 << 31)
    assert units_of(broken, retain_null_key=False) == (KEPT,)
    assert units_of(bomb, retain_null_key=False) == (KEPT,)
    assert units_of(single("a", b"1", marker_type=10), retain_null_key=True) == (DROPPED,)
    assert units_of(b"\x0e\x01", retain_null_key=True) == (DROPPED,)
    assert units_of(entry(b"", num_messages_in_batch=1 << 30), retain_null_key=False) == (KEPT,)


def chunks(key: str, uuid: str, total: int) -> list[bytes]:
    return [
        single(key, b"%d" % number, uuid=uuid, chunk_id=number, num_chunks_from_msg=total, producer_name="p")
        for number in range(total)
    ]


def test_chunks_of_a_message_stay_together() -> None:
    old, new = chunks("a", "1", 3), chunks("a", "2", 2)
    assert compacted(old) == old
    assert compacted([*old, *new]) == new
    assert compacted([*old, single("a", b"x")])[-1:] == [single("a", b"x")]
    assert len(compacted([*old, single("a", b"x")])) == 1
    assert compacted([*old, single("a", b"")]) == []
    # Between the chunks of one message those of others may come.
    assert compacted([old[0], new[0], old[1], new[1], old[2]]) == [old[0], old[1], old[2]]


def test_chunks_of_a_message_without_its_end_are_kept_and_those_without_its_start_are_not() -> None:
    old, new = chunks("a", "1", 3), chunks("a", "2", 2)
    assert compacted([*old, new[0]]) == [*old, new[0]]
    assert compacted([old[1], old[2], *new]) == new
    assert compacted([old[0], old[2], *new]) == [old[0], *new]


def test_chunked_messages_without_an_end_are_bounded() -> None:
    started = [chunks("a", str(number), 2)[0] for number in range(OPEN_MESSAGES_MAX + 5)]
    assert compacted(started) == started[5:]


units = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 30).map(str)),
        st.sampled_from([0, 1, 1, 5]),
        st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 3), st.integers(0, 2))),
    ),
    max_size=120,
)


@given(units, st.integers(1, 12))
def test_a_bound_on_keys_changes_only_how_often_the_topic_is_read(
    drawn: list[tuple[str | None, int, tuple[int, int] | None]], keys_max: int
) -> None:
    given_units = [
        MessageUnit(
            key,
            1 if chunk else size,
            None if chunk is None or key is None else ChunkPlace(("p", f"{chunk[0]}{key}"), chunk[1], 3),
        )
        for key, size, chunk in drawn
    ]
    # Keys of one part cannot be parted: with fewer than these allowed, the selection refuses (and hashes of text vary).
    together = Counter(hash(key) % PARTS for key in {key for key, _, _ in drawn} - {None})
    wide, narrow = Selection(10_000), Selection(max(keys_max, *together.values(), 1))
    reads = 0
    for selection in (wide, narrow):
        while selection.begin_read():
            reads += selection is narrow
            for each in given_units:
                selection.add([each])
                assert selection.keys <= selection._keys_max
    assert [wide.kept[at] for at in range(len(given_units))] == [narrow.kept[at] for at in range(len(given_units))]
    assert reads >= 1


def model(messages: Sequence[Message]) -> list[int]:
    latest: dict[str, int] = {}
    for number, (key, value) in enumerate(messages):
        if key is not None:
            latest.pop(key, None)
            if value:
                latest[key] = number
    return sorted(latest.values())


@pytest.mark.parametrize("keys_max", [3, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_is_what_a_dict_would_keep(seed: int, keys_max: int) -> None:
    rng = random.Random(seed)
    messages: list[Message] = [
        (rng.choice([None, *map(str, range(15))]), b"%d" % number if rng.random() < 0.8 else b"")
        for number in range(200)
    ]
    entries: list[bytes] = []
    place: list[Message] = list(messages)
    while place:
        count = rng.choice([1, 1, 4, 9])
        part, place = place[:count], place[count:]
        entries.append(single(*part[0]) if len(part) == 1 else batch(part, rng.choice(list(KINDS))))
    left: list[bytes] = []
    for each in compacted(entries, keys_max=keys_max):
        if read_metadata(each).HasField("num_messages_in_batch"):
            left += [found[1] for found in messages_in(each) if found is not None]
        else:
            left.append(bytes(each[metadata_span(each)[1] :]))
    assert left == [messages[number][1] for number in model(messages)]


def test_more_keys_than_any_number_of_reads_can_compare_are_refused() -> None:
    selection = Selection(0)
    selection.begin_read()
    with pytest.raises(TooManyKeysError, match="more than 0 keys"):
        selection.add([MessageUnit(str(number), 1) for number in range(100 * PARTS)])


def test_bits_grow_and_are_counted() -> None:
    bits = Bits()
    for number in (5, 5, 200_000, 65_536):
        bits.set(number)
    assert (bits.count, bits[5], bits[6], bits[200_000], bits[1 << 30]) == (3, True, False, True, False)
    bits.clear(5)
    bits.clear(5)
    bits.clear(1 << 30)
    assert (bits.count, bits[5]) == (2, False)


def test_an_entry_of_a_compacted_ledger_has_the_originals_form() -> None:
    raw = raw_message.encode(Position(18, 8), -1, b"payload")
    assert raw.hex() == "0000000f0812100818ffffffffffffffffff0100000007" + b"payload".hex()
    position, found = raw_message.decode(raw)
    assert (position, bytes(found), raw_message.position_in(raw)) == (Position(18, 8), b"payload", Position(18, 8))
    assert raw_message.encode(Position(18, 8), 3, b"").hex() == "000000060812100818030000" + "0000"
    assert raw_message.encode_horizon(Position(19, 0), -1).hex() == "081310003000"
    assert raw_message.encode_horizon(Position(19, 0), 2).hex() == "0813100018023000"


@pytest.mark.parametrize("cut", [0, 3, 10, 20, 25])
def test_a_cut_entry_of_a_compacted_ledger_is_refused(cut: int) -> None:
    raw = raw_message.encode(Position(18, 8), -1, b"payload")
    with pytest.raises(MalformedMetadataError):
        raw_message.decode(raw[:cut])
