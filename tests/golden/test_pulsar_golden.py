"""Data of Apache Pulsar 4.2.4 decodes to the values in its manifest, and Quire's encoders write the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from cursors.ack_state import AckState
from cursors.batch_acks import to_words
from cursors.position_info import Stored, base_of, decode_chain, decode_node, encode_node, encode_whole
from managed_ledger.ledger_list import decode, encode
from managed_ledger.stored_list import ledger_metadata, log_path
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as api
from quire.wire.pulsar.names import decode_name
from tests.golden.pulsar_files import (
    MOMENTS,
    ROOT,
    cursor_nodes,
    entries,
    internal_stats,
    ledgers,
    logs,
    manifest,
    nodes,
    places,
    position,
    ranges_text,
    step,
    stored_running,
)


def state_of(stored: Stored) -> AckState:
    log: Any = None
    state = AckState(log, stored.mark_delete)
    state.ranges, state.batches, state.properties = stored.ranges, stored.batches, stored.properties
    return state


@pytest.mark.parametrize("moment", MOMENTS)
def test_every_ledger_list_tells_what_the_broker_said(moment: str) -> None:
    checked = 0
    for log, value in logs(moment).items():
        listed = decode(value)
        assert listed.deleting == ()
        stats = internal_stats(log)
        if stats is None:
            continue
        checked += 1
        told = [(one["ledgerId"], one["entries"], one["size"]) for one in stats["ledgers"]]
        assert [(one.ledger_id, one.entries, one.size) for one in listed.ledgers] == told
        assert [one.closed_ms > 0 for one in listed.ledgers] == [True] * (len(told) - 1) + [False]
        for info in listed.ledgers[:-1]:
            ledger = ledgers(moment)[info.ledger_id]
            assert (ledger["state"], ledger["lastEntry"], ledger["length"]) == ("CLOSED", info.last_entry_id, info.size)
    assert checked == 9


def test_a_terminated_log_tells_its_last_position() -> None:
    ended = decode(logs("running")["public/default/persistent/ended"])
    stats = internal_stats("public/default/persistent/ended")
    assert stats is not None
    assert ended.terminated == position(stats["lastConfirmedEntry"])
    assert [decode(value).terminated for log, value in logs("running").items() if not log.endswith("/ended")] == [
        None
    ] * (len(logs("running")) - 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_our_encoder_writes_the_ledger_lists_byte_for_byte(moment: str) -> None:
    for log, value in logs(moment).items():
        assert encode(decode(value)) == value, log


def test_the_nodes_are_where_we_look_for_them() -> None:
    for log in logs("running"):
        assert ROOT + log_path(log) in nodes("running")
    names = {decode_name(cursor) for _, cursor in cursor_nodes("running")}
    assert {"holes", "cumulative", "idle", "made-by-admin", "pulsar.dedup", "__compaction"} <= names


def test_every_cursor_of_the_running_broker_stands_where_the_broker_said() -> None:
    checked = 0
    for log, cursor in cursor_nodes("running"):
        stats = internal_stats(log)
        if stats is None:
            continue
        told = stats["cursors"][decode_name(cursor)]
        stored = stored_running(log, cursor)
        checked += 1
        assert stored.mark_delete == position(told["markDeletePosition"]), (log, cursor)
        assert ranges_text(stored) == told["individuallyDeletedMessages"], (log, cursor)
        assert stored.properties == told["properties"], (log, cursor)
        node, _ = decode_node(cursor_nodes("running")[log, cursor])
        assert node.ledger_id == told["cursorLedger"]
        if node.ledger_id >= 0:
            assert len(entries("running")[node.ledger_id]) == told["cursorLedgerLastEntry"] + 1
    assert checked == 10


def test_the_acks_of_the_workload_are_in_the_cursor() -> None:
    step = next(one for one in manifest()["workload"] if one["what"].startswith("holes: individual acks"))
    acked = [tuple(int(part) for part in text.strip("()").split(",")) for _, text in step["acked"]]
    stored = stored_running("public/default/persistent/orders", "holes")
    state = state_of(stored)
    for ledger_id, entry_id, _, index in acked:
        place = Position(ledger_id, entry_id)
        unacked = stored.batches.unacked(place)
        if unacked is None:
            assert state.is_acked(place), place
        else:
            assert not unacked >> index & 1, (place, index)
    assert dict(stored.batches.items()) == {Position(2, 1): 0b10101}
    assert to_words(0b10101) == [21]


@pytest.mark.parametrize("moment", MOMENTS)
def test_our_encoder_writes_the_cursor_nodes_byte_for_byte(moment: str) -> None:
    assert len(cursor_nodes(moment)) == 12
    for key, value in cursor_nodes(moment).items():
        node, stored = decode_node(value)
        assert encode_node(node, state_of(stored), count_max=1000) == value, key


def test_our_encoder_writes_the_entries_of_cursor_ledgers_byte_for_byte() -> None:
    checked = 0
    for ledger_id, ledger in ledgers("running").items():
        if "pulsar/cursor" not in ledger["customMetadata"]:
            continue
        for data in entries("running")[ledger_id]:
            assert base_of(data) is None
            stored = decode_chain([data])
            behind = [place for place, _ in stored.batches.items() if place <= stored.mark_delete]
            if not behind:  # the original leaves such a stale batch; ours forgets it
                assert encode_whole(state_of(stored)) == data
                checked += 1
    assert checked == 19


def test_a_graceful_stop_brings_every_cursor_into_its_node() -> None:
    for (log, cursor), value in cursor_nodes("stopped").items():
        node, stored = decode_node(value)
        assert node.ledger_id == -1
        before = stored_running(log, cursor)
        if cursor not in ("__compaction", "delayed"):
            assert stored.mark_delete == before.mark_delete, (log, cursor)
        assert ranges_text(stored) == ranges_text(before), (log, cursor)
    assert not any("pulsar/cursor" in ledger["customMetadata"] for ledger in ledgers("stopped").values())


def test_the_custom_metadata_of_ledgers_is_what_we_write() -> None:
    orders = ledgers("running")[2]["customMetadata"]
    assert {key: value.decode() for key, value in ledger_metadata("public/default/persistent/orders")} == orders
    from cursors.cursor_node import cursor_ledger_metadata

    written = cursor_ledger_metadata("public/default/persistent/orders", "cumulative")
    assert {key: value.decode() for key, value in written} == ledgers("running")[5]["customMetadata"]


def messages_of(log: str) -> list[tuple[Position, api.MessageMetadata, bytes]]:
    """Return every entry of a log with its metadata parsed and its checksum verified."""
    found = []
    for info in decode(logs("running")[log]).ledgers:
        for entry_id, entry in enumerate(entries("running").get(info.ledger_id, [])):
            if entry[:2] == b"\x0e\x02":  # broker entry metadata, which this broker did not write
                raise AssertionError("unexpected broker metadata")
            assert entry[:2] == b"\x0e\x01"
            assert int.from_bytes(entry[2:6], "big") == crc32c(entry[6:])
            size = int.from_bytes(entry[6:10], "big")
            metadata = api.MessageMetadata.FromString(entry[10 : 10 + size])
            found.append((Position(info.ledger_id, entry_id), metadata, entry[10 + size :]))
    return found


def test_the_entries_of_the_topic_are_the_messages_that_were_sent() -> None:
    found = messages_of("public/default/persistent/orders")
    batches, singles, packed = found[:5], found[5:25], found[25:]
    assert [place for place, _, _ in batches for _ in range(5)] == places(step("25 messages")["ids"])
    sent: list[tuple[bytes, str]] = []
    for _, metadata, body in batches:
        assert (metadata.producer_name, metadata.num_messages_in_batch) == ("golden-batch", 5)
        for _ in range(5):
            size = int.from_bytes(body[:4], "big")
            single = api.SingleMessageMetadata.FromString(body[4 : 4 + size])
            end = 4 + size + single.payload_size
            sent.append((body[4 + size : end], single.partition_key))
            body = body[end:]
        assert body == b""
    assert sorted(sent) == sorted((b"batched-%d" % n, f"k{n % 3}") for n in range(25))
    assert [place for place, _, _ in singles] == places(step("20 messages")["ids"])
    for number, (_, metadata, body) in enumerate(singles):
        assert body == b"single-%d" % number
        assert metadata.producer_name == "golden-single"
        assert metadata.event_time == 1_700_000_000_000 + number
        assert {pair.key: pair.value for pair in metadata.properties} == {"n": str(number)}
    kinds = [api.CompressionType.Name(metadata.compression) for _, metadata, _ in packed]
    assert kinds == ["LZ4", "ZLIB", "ZSTD", "SNAPPY"]
    assert {metadata.uncompressed_size for _, metadata, _ in packed} == {len(b"compressed " * 40)}


def test_keyed_messages_lie_in_the_partitions_they_were_sent_to() -> None:
    ids = [tuple(int(part) for part in text.strip("()").split(",")) for text in step("partitioned topic")["ids"]]
    for index in range(3):
        found = messages_of(f"public/default/persistent/parts-partition-{index}")
        expected = {(one[0], one[1]): number for number, one in enumerate(ids) if one[2] == index}
        assert {tuple(place): int(body[5:]) for place, _, body in found} == expected
        assert all(metadata.partition_key == f"key-{int(body[5:])}" for _, metadata, body in found)
