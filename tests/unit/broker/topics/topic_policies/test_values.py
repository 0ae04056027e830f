"""Avro's binary form of events, and what an entry of a log says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.errors import MetadataRefusedError
from broker.ownership.values import Json
from broker.topics.schemas.avro_schema import AvroType, parse
from broker.topics.topic_policies.avro import ITEMS_MAX, AvroValueError, decode, encode, has_room_for
from broker.topics.topic_policies.event_schema import event_type
from broker.topics.topic_policies.events import UNREADABLE, PolicyChange, changes_in, event_entry, event_value, key_of
from broker.topics.topic_policies.source import decode_announced
from broker.topics.topic_policies.writing import EventWriter, Said, left_over, said_by
from quire.ledger.position import Position
from quire.wire.pulsar.metadata import read_metadata
from quire.wire.pulsar.names import TopicName

NAME = TopicName.parse("persistent://a/b/c")
FULL: Json = {
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
    "backLogQuotaMap": {
        "message_age": {"limit": -1, "limitSize": None, "limitTime": 5, "policy": "producer_exception"}
    },
    "compactionThreshold": 1 << 40,
    "deduplicationEnabled": False,
    "dispatchRate": {
        "dispatchThrottlingRateInByte": -(1 << 60),
        "dispatchThrottlingRateInMsg": 5,
        "ratePeriodInSecond": 1,
        "relativeToPublishRate": True,
    },
    "entryFilters": {"entryFilterNames": "ä,b"},
    "persistence": {
        "bookkeeperAckQuorum": 2,
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "managedLedgerMaxMarkDeleteRate": 0.25,
        "managedLedgerStorageClassName": None,
    },
    "replicationClusters": ["x", ""],
    "schemaCompatibilityStrategy": "FULL",
    "subscriptionPolicies": {"s": {"dispatchRate": None}},
    "subscriptionTypesEnabled": ["Shared", "Key_Shared"],
}


def entry_of(fields: Json | None, *, is_global: bool = False, version: int = 0, name: TopicName = NAME) -> bytes:
    value = None if fields is None else event_value(name, {**fields, "isGlobal": is_global}, "c")
    return event_entry(
        name,
        value,
        is_global=is_global,
        cluster="c",
        kind=event_type(),
        version=version,
        producer="p",
        sequence_id=1,
        now_ms=2,
    )


def test_policies_of_every_kind_come_back_as_they_went() -> None:
    value = event_value(NAME, FULL, "c")
    found = decode(event_type(), encode(event_type(), value))
    policies = found["topicPoliciesEvent"]["policies"]
    assert {key: policies[key] for key in FULL} == FULL
    assert found["replicateTo"] == ["c"]


@pytest.mark.parametrize(
    ("definition", "value", "data"),
    [
        # The examples of the Avro specification.
        (b'"long"', 0, "00"),
        (b'"long"', -1, "01"),
        (b'"long"', 1, "02"),
        (b'"long"', -64, "7f"),
        (b'"long"', 64, "8001"),
        (b'"string"', "foo", "06666f6f"),
        (b'["null","string"]', None, "00"),
        (b'["null","string"]', "a", "020261"),
        (b'{"type":"array","items":"long"}', [3, 27], "04063600"),
        (
            b'{"type":"record","name":"r","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}',
            {"a": 27, "b": "foo"},
            "3606666f6f",
        ),
    ],
)
def test_the_bytes_are_those_of_the_specification(definition: bytes, value: Any, data: str) -> None:
    assert encode(parse(definition), value).hex() == data
    assert decode(parse(definition), bytes.fromhex(data)) == value


def test_blocks_with_their_size_are_read() -> None:
    assert decode(parse(b'{"type":"array","items":"long"}'), bytes.fromhex("0304063600")) == [3, 27]


def test_bytes_that_are_cut_off_are_no_value() -> None:
    data = encode(event_type(), event_value(NAME, FULL, "c"))
    for size in range(len(data)):
        with pytest.raises(AvroValueError):
            decode(event_type(), data[:size])


def test_a_damaged_length_does_not_take_memory() -> None:
    kind = parse(b'{"type":"array","items":"null"}')
    with pytest.raises(AvroValueError, match="too many"):
        decode(kind, encode(parse(b'"long"'), ITEMS_MAX + 1))
    with pytest.raises(AvroValueError):
        decode(parse(b'"string"'), encode(parse(b'"long"'), 1 << 60))
    with pytest.raises(AvroValueError, match="64 bits"):
        decode(parse(b'"long"'), b"\xff" * 20)


def test_what_has_no_place_in_a_schema_is_seen() -> None:
    assert has_room_for(event_type(), event_value(NAME, FULL, "c"))
    for fields in ({"unheardOf": 1}, {"persistence": {"unheardOf": 1}}, {"subscriptionTypesEnabled": ["Sharde"]}):
        assert not has_room_for(event_type(), event_value(NAME, fields, "c"))
    assert has_room_for(event_type(), event_value(NAME, {"unheardOf": None}, "c"))


# What an entry says


def schemas(number: int) -> AvroType | None:
    return event_type() if number == 0 else None


def test_an_entry_says_what_the_policies_of_its_topic_are() -> None:
    fields = {"isGlobal": False, "messageTTLInSeconds": 5}
    assert changes_in(entry_of({"messageTTLInSeconds": 5}), schemas) == [PolicyChange(NAME.full, fields)]
    assert changes_in(entry_of(None), schemas) == [PolicyChange(NAME.full, None)]
    assert changes_in(entry_of({}, is_global=True), schemas) == [PolicyChange(f"__G__{NAME.full}", {"isGlobal": True})]
    assert changes_in(entry_of(None, is_global=True), schemas) == [PolicyChange(f"__G__{NAME.full}", None)]
    partition = changes_in(entry_of({}, name=NAME.with_partition(3)), schemas)
    assert [change.key for change in partition] == [NAME.full]
    assert key_of(NAME.with_partition(3)) == read_metadata(entry_of({}, name=NAME.with_partition(3))).partition_key
    assert key_of(NAME.with_partition(3)) == NAME.full


def test_what_cannot_be_read_says_so_of_its_topic() -> None:
    entry = entry_of({"messageTTLInSeconds": 5})
    [change] = changes_in(entry[:-1] + b"?", schemas)
    assert (change.key, list(change.fields or {})) == (NAME.full, [UNREADABLE])
    [change] = changes_in(entry_of({}, version=7), schemas)
    assert change.fields == {UNREADABLE: "there is no version 7 of the schema"}
    assert changes_in(b"no entry", schemas) == []


# What is written


@dataclass
class FakeLog:
    said: dict[str, Json | None] = field(default_factory=dict)

    def fields(self, key: str) -> Json | None:
        return self.said.get(key)

    def has(self, key: str) -> bool:
        return key in self.said


def test_a_change_is_written_if_it_says_anything_new() -> None:
    def with_ttl(own: Json) -> Json:
        return {**own, "messageTTLInSeconds": 5, "persistence": None}

    ours = {"isGlobal": False, "messageTTLInSeconds": 5}
    assert said_by(FakeLog(), NAME, with_ttl, False, {}) == [Said(NAME.full, ours)]
    assert said_by(FakeLog({NAME.full: ours}), NAME, with_ttl, False, {}) == []
    assert said_by(FakeLog({NAME.full: ours}), NAME, with_ttl, True, {}) == [
        Said(NAME.full, {**ours, "isGlobal": True}, True)
    ]
    older = {NAME.full: {"maxMessageSize": 7}}
    assert said_by(FakeLog(), NAME, with_ttl, False, older) == [Said(NAME.full, {**ours, "maxMessageSize": 7})]
    # What was deleted in the log does not come back from elsewhere.
    assert said_by(FakeLog({NAME.full: None}), NAME, with_ttl, False, older) == [Said(NAME.full, ours)]


def test_a_deletion_is_written_of_either_kind_that_is_there() -> None:
    both = FakeLog({key_of(NAME): {}, key_of(NAME, is_global=True): {}})
    assert said_by(both, NAME, None, False, {}) == [Said(NAME.full, None), Said(NAME.full, None, True)]
    assert said_by(FakeLog(), NAME, None, False, {}) == []
    assert said_by(FakeLog(), NAME, None, False, {NAME.full: {}}) == [Said(NAME.full, None)]


def test_what_is_stored_elsewhere_and_has_no_place_in_the_log_stays_there() -> None:
    older: dict[str, Json] = {
        "persistent://a/b/c": {"maxMessageSize": 7},
        "persistent://a/b/d": {"unheardOf": 7},
        "persistent://a/b/e": {"maxMessageSize": "x"},
        "persistent://a/b/f": {"maxMessageSize": 8},
    }
    log = FakeLog({"persistent://a/b/f": None})
    assert left_over(log, older) == [Said("persistent://a/b/c", {"maxMessageSize": 7})]
    writer = EventWriter("c", "p", 0)
    for fields in ({"unheardOf": 7}, {"maxMessageSize": "x"}):
        with pytest.raises(MetadataRefusedError, match="persistent://a/b/d"):
            writer.entry(Said("persistent://a/b/d", fields), 1)


def test_announced_places_that_cannot_be_read_count_as_none() -> None:
    assert decode_announced(b'{"__change_events":"7:3","x":5}') == {"__change_events": Position(7, 3)}
    assert decode_announced(b"x") == decode_announced(b"[]") == {}
