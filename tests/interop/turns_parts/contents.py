"""Topics with schemas, deduplication, an end, and partitions."""

from __future__ import annotations

import json
from types import new_class
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from tests.interop.turns_parts.side import (
    NAMESPACE,
    PATIENCE_MS,
    Json,
    Side,
    name_of,
    path_of,
    silent,
    stored,
)
from tests.support.waiting import wait_until


class Schemas:
    """A topic whose JSON schema gets a field with each turn, and one with a schema in AVRO over REST."""

    topic, avro = "schemas", "avro"

    def __init__(self) -> None:
        self.turns = 0

    def _record(self, turn: int) -> Any:
        fields = {f"a{number}": Integer() for number in range(turn)}
        return new_class("Order", (Record,), exec_body=lambda body: body.update(fields))

    def _avro(self, turn: int) -> str:
        fields = [{"name": f"a{number}", "type": ["null", "long"], "default": None} for number in range(turn)]
        return json.dumps({"type": "record", "name": "Order", "namespace": "quire", "fields": fields})

    def work(self, side: Side, turn: int) -> None:
        if turn == 1:
            side.ask("PUT", f"namespaces/{NAMESPACE}/schemaCompatibilityStrategy", json="FORWARD")
        self.turns = turn
        # The first version too, which exists and is found again.
        for each in {1, turn}:
            record = self._record(each)
            producer = side.client.create_producer(name_of(self.topic), schema=JsonSchema(record))
            producer.send(record(**{f"a{number}": number for number in range(each)}))
            producer.close()
        other = new_class("Order", (Record,), exec_body=lambda body: body.update(z=String(required=True)))
        with pytest.raises(pulsar.IncompatibleSchema):
            side.client.create_producer(name_of(self.topic), schema=JsonSchema(other))
        schema = self._avro(turn)
        given = {"type": "AVRO", "schema": schema, "properties": {"turn": str(turn)}}
        path = f"schemas/{NAMESPACE}/{self.avro}"
        assert side.ask("POST", f"{path}/schema", json=given) == {"version": {"version": turn - 1}}
        wrong = {**given, "schema": schema.replace("long", "string")}
        assert side.broker.ask("POST", f"/admin/v2/{path}/schema", json=wrong).status_code == 409

    def view(self, side: Side) -> Json:
        messages = side.read(name_of(self.topic))
        versions = [int.from_bytes(each["schema"].encode()) for each in messages]
        assert versions == [0] + [each for turn in range(2, self.turns + 1) for each in (0, turn - 1)]
        return {"messages": messages, **{each: self._schemas(side, each) for each in (self.topic, self.avro)}}

    def _schemas(self, side: Side, topic: str) -> Json:
        path = f"schemas/{NAMESPACE}/{topic}"
        every = side.ask("GET", f"{path}/schemas")
        last = side.ask("GET", f"{path}/schema")
        assert last["version"] == self.turns - 1
        assert [each["version"] for each in every["getSchemaResponses"]] == list(range(self.turns))
        return [every, last, *(side.ask("GET", f"{path}/schema/{version}") for version in range(self.turns))]


class Deduplicated:
    """A topic that ignores what a producer has sent before, also to the other broker."""

    topic = "deduplicated"

    def __init__(self) -> None:
        self.last = -1
        self.sent = 0

    def work(self, side: Side, turn: int) -> None:
        if turn == 1:
            side.ask("PUT", path_of(self.topic))
            side.ask("POST", f"{path_of(self.topic)}/deduplicationEnabled", json=True)
            path = f"{path_of(self.topic)}/deduplicationEnabled?applied=true"
            wait_until(lambda: side.ask("GET", path) is True, "the policy is seen")
        batched = turn % 2 == 0
        producer = side.client.create_producer(
            name_of(self.topic), "p", batching_enabled=batched, batching_max_publish_delay_ms=60_000
        )
        assert producer.last_sequence_id() == self.last
        # Five up to the last id are sent again, in a batch of their own: one counts as a whole.
        for ids in (range(max(0, self.last - 4), self.last + 1), range(self.sent, self.sent + 10)):
            for number in ids:
                producer.send_async(b"%d" % number, lambda *_: None, sequence_id=number)
            producer.flush()
        producer.close()
        # This client names only the lowest id of a batch.
        self.last = self.sent if batched else self.sent + 9
        self.sent += 10

    def view(self, side: Side) -> Json:
        messages = side.read(name_of(self.topic))
        assert [each["data"] for each in messages] == [str(number) for number in range(self.sent)]
        producer = side.client.create_producer(name_of(self.topic), "p")
        assert producer.last_sequence_id() == self.last
        producer.close()
        enabled = side.ask("GET", f"{path_of(self.topic)}/deduplicationEnabled?applied=true")
        return {"messages": messages, "enabled": enabled, "stored": stored(side, self.topic)}


class Terminated:
    """Topics that each turn terminates one of; they are read to their end and take nothing."""

    def __init__(self) -> None:
        self.last: dict[str, Json] = {}

    def work(self, side: Side, turn: int) -> None:
        topic = f"terminated-{turn}"
        side.client.subscribe(name_of(topic), "s").close()
        ids = side.publish(name_of(topic), [(b"%d" % number, {}) for number in range(10)])
        self.last[topic] = side.ask("POST", f"{path_of(topic)}/terminate")
        assert (self.last[topic]["ledgerId"], self.last[topic]["entryId"]) == ids[-1][:2]

    def view(self, side: Side) -> Json:
        found = {}
        for topic, last in self.last.items():
            with pytest.raises(pulsar.TopicTerminated):
                side.client.create_producer(name_of(topic))
            messages = side.read(name_of(topic))
            assert [each["data"] for each in messages] == [str(number) for number in range(10)]
            consumer = side.client.subscribe(name_of(topic), "s")
            received = [consumer.receive(PATIENCE_MS).data() for _ in range(10)]
            silent(consumer)
            consumer.close()
            again = side.ask("POST", f"{path_of(topic)}/terminate")
            assert (again["ledgerId"], again["entryId"]) == (last["ledgerId"], last["entryId"])
            found[topic] = [messages, received, again, stored(side, topic)]
        return found


class Partitioned:
    """A topic whose partitions become more, with a key's messages on one of them, and a chunked message."""

    topic = "partitioned"

    def __init__(self) -> None:
        self.sent = 0
        self.partitions = 0

    def work(self, side: Side, turn: int) -> None:
        if turn == 1:
            side.ask("PUT", f"{path_of(self.topic)}/partitions", json=2)
            self.partitions = 2
        elif turn in (3, 4):
            self.partitions = turn
            side.ask("POST", f"{path_of(self.topic)}/partitions", json=turn)
        values = [(b"%d" % (self.sent + number), {"partition_key": f"k{number}"}) for number in range(12)]
        side.publish(name_of(self.topic), values)
        self.sent += len(values)
        side.publish(name_of("chunked"), [(b"%d" % turn * 6_000_000, {})], chunking_enabled=True)

    def view(self, side: Side) -> Json:
        partitions = [f"{self.topic}-partition-{number}" for number in range(self.partitions)]
        messages = [side.read(name_of(each)) for each in partitions]
        assert sum(map(len, messages)) == self.sent
        chunked = side.read(name_of("chunked"))
        metadata = side.ask("GET", f"{path_of(self.topic)}/partitions")
        assert metadata["partitions"] == self.partitions
        metadata.setdefault("properties", {})  # the original shows none where it stored none
        return [messages, chunked, metadata, *(stored(side, each) for each in partitions)]
