"""The broker that serves in a turn with its client, and what is read of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import httpx2
import pulsar
import pytest

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
