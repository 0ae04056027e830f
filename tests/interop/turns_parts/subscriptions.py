"""Topics with backlogs, delayed messages, and compacted."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pulsar

from tests.interop.turns_parts.side import (
    DUE_MS,
    HOUR_MS,
    PATIENCE_MS,
    Json,
    Side,
    name_of,
    path_of,
    place,
    silent,
    stored,
)
from tests.support.waiting import wait_until


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
