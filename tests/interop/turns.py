"""Topics that brokers of two kinds serve in turns. Each part uses one topic and knows what its clients must see."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from types import new_class
from typing import Any, ClassVar, Protocol, TypeAlias

import httpx2
import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from tests.support.waiting import wait_until

PATIENCE_MS = 30_000
SILENCE_MS = 500
HOUR_MS = 3_600_000
DUE_MS = 3_000
"""Delay of messages that are due in the next turn."""
NAMESPACE = "public/default"
Json: TypeAlias = Any
"""A value that JSON has, or tuples of such, so that two views can be compared."""


class Broker(Protocol):
    """A running broker of either kind."""

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response: ...


class Side:
    """The broker that serves in this turn, and an official client of it."""

    def __init__(self, broker: Broker, client: pulsar.Client) -> None:
        self.broker = broker
        self.client = client

    def ask(self, method: str, path: str, **options: Any) -> Json:
        """Return the answer of the REST, or None without one. It must be a success."""
        answer = self.broker.ask(method, f"/admin/v2/{path}", **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def publish(self, topic: str, values: Sequence[tuple[Any, dict[str, Any]]], **options: Any) -> list[Json]:
        """Publish contents, each with its options, and return the ids; on return each has its receipt."""
        producer = self.client.create_producer(topic, **options)
        ids: list[Json] = [None] * len(values)
        results = []

        def receipt(number: int, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            results.append(result)
            ids[number] = place(message_id)

        for number, (content, each) in enumerate(values):
            producer.send_async(content, lambda result, found, number=number: receipt(number, result, found), **each)
        producer.flush()
        producer.close()
        assert results == [pulsar.Result.Ok] * len(values)
        return ids

    def read(self, topic: str, **options: Any) -> list[Json]:
        """Return what a reader gets from the first message to the last."""
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest, **options)
        found = []
        while reader.has_message_available():
            found.append(message_of(reader.read_next(PATIENCE_MS)))
        reader.close()
        return found


class Part(Protocol):
    """One topic."""

    def work(self, side: Side, turn: int) -> None:
        """Use the topic, as in turn 1 and so on."""

    def view(self, side: Side) -> Json:
        """Return what clients see, which must be the same for both brokers; nothing is changed by it."""


def silent(consumer: pulsar.Consumer) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(SILENCE_MS)


def place(message_id: pulsar.MessageId) -> Json:
    return (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index(), message_id.partition())


def message_of(message: pulsar.Message) -> Json:
    """Return all that a client sees of a message, but for the number of its deliveries."""
    return {
        "id": place(message.message_id()),
        "data": message.data().decode(errors="replace")[:100],
        "size": len(message.data()),
        "key": message.partition_key(),
        "ordering key": message.ordering_key(),
        "properties": message.properties(),
        "event time": message.event_timestamp(),
        "publish time": message.publish_timestamp(),
        "producer": message.producer_name(),
        "schema": message.schema_version(),
        "null": message.has_null_value(),
    }


def path_of(topic: str) -> str:
    return f"persistent/{NAMESPACE}/{topic}"


def name_of(topic: str) -> str:
    return f"persistent://{NAMESPACE}/{topic}"


def stored(side: Side, topic: str) -> Json:
    """Return what the REST shows of the entries and subscriptions of a topic, without what changes with each load."""
    internal = side.ask("GET", f"{path_of(topic)}/internalStats")
    # The open ledger counts 0 in the list: its entries and bytes stand beside it.
    ledgers = [(each["ledgerId"], each["entries"], each["size"]) for each in internal["ledgers"]]
    if not ledgers[-1][1]:
        ledgers[-1] = (ledgers[-1][0], internal["currentLedgerEntries"], internal["currentLedgerSize"])
    last = side.ask("GET", f"{path_of(topic)}/lastMessageId")
    stats = side.ask("GET", f"{path_of(topic)}/stats")
    wanted = (
        "msgBacklog",
        "isDurable",
        "isReplicated",
        "durable",
        "replicated",
        "allowOutOfOrderDelivery",
        "subscriptionProperties",
    )
    return {
        "ledgers": [each for each in ledgers if each[1]],
        "entries": internal["numberOfEntries"],
        "subscriptions": {
            name: {key: each.get(key) for key in wanted}
            for name, each in sorted(stats["subscriptions"].items())
            if not name.startswith("reader-")
        },
        "properties": side.ask("GET", f"{path_of(topic)}/properties"),
        "last": (last["ledgerId"], last["entryId"]),
    }


class Backlogs:
    """A topic with subscriptions of all types: whole and half batches are acknowledged, and some messages are kept.

    Half batches are left in odd turns only: the original stores them when it stops, but does not read them back, also
    from its own stop."""

    topic = "backlogs"
    types: ClassVar = {
        "exclusive": pulsar.ConsumerType.Exclusive,
        "failover": pulsar.ConsumerType.Failover,
        "shared": pulsar.ConsumerType.Shared,
        "key_shared": pulsar.ConsumerType.KeyShared,
    }

    def __init__(self) -> None:
        self.published: list[Json] = []
        self.left: dict[str, list[str]] = {name: [] for name in self.types}

    def _subscribe(self, side: Side, name: str) -> pulsar.Consumer:
        return side.client.subscribe(
            name_of(self.topic),
            name,
            self.types[name],
            initial_position=pulsar.InitialPosition.Earliest,
            batch_index_ack_enabled=True,
            properties={"made": "by a consumer"},
        )

    def _receive(self, side: Side, name: str) -> tuple[pulsar.Consumer, list[pulsar.Message]]:
        """Return a consumer, and all it gets, which must be what is left."""
        consumer = self._subscribe(side, name)
        found = [consumer.receive(PATIENCE_MS) for _ in self.left[name]]
        assert sorted(each.data().decode() for each in found) == sorted(self.left[name]), name
        silent(consumer)
        return consumer, found

    def work(self, side: Side, turn: int) -> None:
        for name in self.types:
            self._subscribe(side, name).close()
        contents = [f"{turn}-{number}" for number in range(20)]
        options = [
            {"partition_key": f"k{n % 5}", "properties": {"n": str(n)}, "event_timestamp": 1 + n} for n in range(20)
        ]
        values = [(each.encode(), option) for each, option in zip(contents, options, strict=True)]
        compression = (pulsar.CompressionType.LZ4, pulsar.CompressionType.ZSTD, pulsar.CompressionType.NONE)[turn % 3]
        batches = {"batching_enabled": True, "batching_max_messages": 10, "batching_max_publish_delay_ms": 1000}
        self.published += side.publish(name_of(self.topic), values, compression_type=compression, **batches)
        single = [f"{turn}-single-{number}" for number in range(5)]
        self.published += side.publish(name_of(self.topic), [(each.encode(), {}) for each in single])
        for name, left in self.left.items():
            left += [*contents, *single]
            consumer, found = self._receive(side, name)
            if name in ("exclusive", "failover"):
                last = f"{turn}-{15 if turn % 2 else 9}"
                boundary = next(number for number, each in enumerate(found) if each.data().decode() == last)
                consumer.acknowledge_cumulative(found[boundary])
                acknowledged = found[: boundary + 1]
            else:
                acknowledged = [each for number, each in enumerate(found) if self._is_acknowledged(number, each, turn)]
                for each in acknowledged:
                    consumer.acknowledge(each)
            for each in acknowledged:
                left.remove(each.data().decode())
            consumer.close()

    def _is_acknowledged(self, number: int, message: pulsar.Message, turn: int) -> bool:
        if turn % 2 or message.message_id().batch_index() < 0:
            return number % 3 == turn % 3
        return message.data() not in [b"%d-%d" % (turn, each) for each in range(10, 20)]  # the second batch is kept

    def view(self, side: Side) -> Json:
        messages = side.read(name_of(self.topic))
        assert [each["id"] for each in messages] == self.published
        delivered = {}
        for name in self.types:
            consumer, found = self._receive(side, name)
            delivered[name] = sorted(place(each.message_id()) for each in found)
            consumer.close()
        return {"messages": messages, "delivered": delivered, "stored": stored(side, self.topic)}


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


class Compacted:
    """A topic that is compacted in each turn, before and behind which some messages are published."""

    topic = "compacted"

    def __init__(self) -> None:
        self.newest: dict[str, str] = {}

    def work(self, side: Side, turn: int) -> None:
        values = {f"k{(turn + number) % 12}": "" if number == 7 else f"{turn}-{number}" for number in range(8)}
        self._publish(side, values, batching_enabled=turn % 3 == 0)
        path = f"{path_of(self.topic)}/compaction"
        side.ask("PUT", path)
        wait_until(lambda: side.ask("GET", path)["status"] != "RUNNING", "the compaction ends")
        assert side.ask("GET", path)["status"] == "SUCCESS"
        self._publish(side, {f"k{turn}": f"{turn}-late", f"k{turn + 1}": ""})

    def _publish(self, side: Side, values: dict[str, str], **options: Any) -> None:
        given = [(value.encode(), {"partition_key": key}) for key, value in values.items()]
        side.publish(name_of(self.topic), given, **options)
        for key, value in values.items():
            self.newest.pop(key, None)
            if value:
                self.newest[key] = value

    def view(self, side: Side) -> Json:
        compacted = side.read(name_of(self.topic), is_read_compacted=True)
        # The C++ client hands out messages that were left out of a batch: they have no key.
        seen = {each["key"]: each["data"] for each in compacted if each["key"]}
        assert {key: value for key, value in seen.items() if value} == self.newest
        messages = side.read(name_of(self.topic))
        return {"compacted": compacted, "messages": messages, "stored": stored(side, self.topic)}


class Delayed:
    """A Shared subscription with messages that are due at once, in the next turn, and in an hour."""

    topic = "delayed"

    def __init__(self) -> None:
        self.due: list[str] = []
        self.count = 0
        self.due_at = 0.0

    def _subscribe(self, side: Side) -> pulsar.Consumer:
        return side.client.subscribe(name_of(self.topic), "s", pulsar.ConsumerType.Shared)

    def work(self, side: Side, turn: int) -> None:
        consumer = self._subscribe(side)
        for _ in list(self.due):
            message = consumer.receive(PATIENCE_MS)
            self.due.remove(message.data().decode())
            consumer.acknowledge(message)
        silent(consumer)
        consumer.close()
        now = int(time.time() * 1000)
        self.due_at = time.time() + DUE_MS / 1000
        delays = {"now": 0, "soon": now + DUE_MS, "late": now + HOUR_MS}
        names = [f"{turn}-{name}-{number}" for number in range(4) for name in delays]
        values = [
            (name.encode(), {"deliver_at": delays[name.split("-")[1]]} if "now" not in name else {}) for name in names
        ]
        side.publish(name_of(self.topic), values)
        self.count += len(names)
        self.due = [name for name in names if "late" not in name]

    def view(self, side: Side) -> Json:
        wait_until(lambda: time.time() > self.due_at, "the messages are due")
        consumer = self._subscribe(side)
        found = sorted(consumer.receive(PATIENCE_MS).data().decode() for _ in self.due)
        assert found == sorted(self.due)
        silent(consumer)
        consumer.close()
        messages = side.read(name_of(self.topic))
        assert len(messages) == self.count
        return {"messages": messages, "stored": stored(side, self.topic)}


class Deduplicated:
    """A topic that ignores what a producer has sent before, also to the other broker."""

    topic = "deduplicated"

    def __init__(self) -> None:
        self.last = -1

    def work(self, side: Side, turn: int) -> None:
        if turn == 1:
            side.ask("PUT", path_of(self.topic))
            side.ask("POST", f"{path_of(self.topic)}/deduplicationEnabled", json=True)
            path = f"{path_of(self.topic)}/deduplicationEnabled?applied=true"
            wait_until(lambda: side.ask("GET", path) is True, "the policy is seen")
        producer = side.client.create_producer(name_of(self.topic), "p", batching_enabled=turn % 2 == 0)
        assert producer.last_sequence_id() == self.last
        # The last five of the turn before are sent again, in a batch of their own: one counts as a whole.
        for ids in (range(max(0, self.last - 4), self.last + 1), range(self.last + 1, self.last + 11)):
            for number in ids:
                producer.send_async(b"%d" % number, lambda *_: None, sequence_id=number)
            producer.flush()
        producer.close()
        self.last += 10

    def view(self, side: Side) -> Json:
        messages = side.read(name_of(self.topic))
        assert [each["data"] for each in messages] == [str(number) for number in range(self.last + 1)]
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


class Policies:
    """Policies of a topic and its namespace, some more with each turn, and properties."""

    topic, namespace = "policies", "public/turns"
    of_topic = (
        ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}),
        ("maxConsumers", 7),
        ("publishRate", {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1}),
        ("delayedDelivery", {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 0}),
        ("compactionThreshold", 100_000_000),
        ("maxConsumersPerSubscription", 5),
        ("maxSubscriptionsPerTopic", 9),
        ("maxUnackedMessagesOnConsumer", 4_000),
        (
            "dispatchRate",
            {"dispatchThrottlingRateInMsg": 5000, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1},
        ),
        ("messageTTL?messageTTL=3600", None),
        (
            "inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 600,
                "deleteWhileInactive": False,
            },
        ),
        ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": True}),
    )
    """Two for each turn; the first of two turns before is taken away again."""
    of_namespace = (
        ("POST", "retention", {"retentionTimeInMinutes": 20, "retentionSizeInMB": 200}),
        ("POST", "messageTTL", 7200),
        ("POST", "backlogQuota", {"limitSize": 1_000_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}),
        ("POST", "deduplication", True),
        ("POST", "autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}),
        ("POST", "maxConsumersPerTopic", 30),
    )

    differ = frozenset(
        (
            "maxSubscriptionsPerTopic",
            "maxConsumersPerSubscription",
            "publishRate",
            "persistence",
            "backlogQuotaMap",
            "subscriptionTypesEnabled",
        )
    )
    """Policies with `?applied=true` that are not compared: the original shows nothing of the first three where only
    broker.conf has them, a rate of its cursors in the fourth, and changes its own copy of the namespace's policies when
    it is asked for the last."""

    @property
    def _path(self) -> str:
        return f"persistent/{self.namespace}/{self.topic}"

    def work(self, side: Side, turn: int) -> None:
        if turn == 1:
            side.ask("PUT", f"namespaces/{self.namespace}")
            side.ask("PUT", self._path)
        for resource, body in self.of_topic[2 * turn - 2 : 2 * turn]:
            side.ask("POST", f"{self._path}/{resource}", **({} if body is None else {"json": body}))
        if turn > 2:
            side.ask("DELETE", f"{self._path}/{self.of_topic[2 * turn - 6][0]}")
        method, resource, body = self.of_namespace[turn - 1]
        side.ask(method, f"namespaces/{self.namespace}/{resource}", json=body)
        side.ask("PUT", f"{self._path}/properties", json={f"turn{turn}": "yes", "last": str(turn)})
        name = f"persistent://{self.namespace}/{self.topic}"
        side.client.subscribe(name, f"s{turn}", pulsar.ConsumerType.Shared).close()
        side.ask("PUT", f"{self._path}/subscription/s{turn}/properties", json={"turn": str(turn)})
        wait_until(
            lambda: all(map(lambda each: self._is_seen(side, *each), self.of_topic[2 * turn - 2 : 2 * turn])),
            "policies",
        )

    def _is_seen(self, side: Side, resource: str, body: Json) -> bool:
        """Return whether the broker shows a policy: the original shows what it reads back from its log."""
        found = side.ask("GET", f"{self._path}/{resource.partition('?')[0]}")
        return found is not None

    def view(self, side: Side) -> Json:
        names = [resource.partition("?")[0] for resource, _ in self.of_topic]
        names += [
            "maxProducers",
            "subscriptionTypesEnabled",
            "deduplicationEnabled",
            "persistence",
            "subscribeRate",
            "backlogQuotaMap",
        ]
        topic = {each: side.ask("GET", f"{self._path}/{each}") for each in names}
        applied = {each: side.ask("GET", f"{self._path}/{each}?applied=true") for each in {*names} - self.differ}
        properties = side.ask("GET", f"{self._path}/properties")
        subscriptions = sorted(side.ask("GET", f"{self._path}/subscriptions"))
        own = [name for name in subscriptions if name != "__compaction"]
        each = {name: side.ask("GET", f"{self._path}/subscription/{name}/properties") for name in own}
        namespace = side.ask("GET", f"namespaces/{self.namespace}")
        return {
            "topic": topic,
            "applied": applied,
            "properties": properties,
            "names": subscriptions,
            "each": each,
            "namespace": namespace,
        }


def parts() -> list[Part]:
    """Return one of each, unused."""
    return [Backlogs(), Schemas(), Compacted(), Delayed(), Deduplicated(), Terminated(), Partitioned(), Policies()]
