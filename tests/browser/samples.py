"""Topics with messages of many kinds, for the pages of topics."""

from __future__ import annotations

import json
import struct
from typing import Any

import _pulsar
import pulsar
from pulsar.schema import Schema

from tests.support import web
from tests.support.server import StandaloneProcess

ORDERS = "persistent://public/default/orders"
STUCK = "persistent://public/default/stuck"
PARTS = "persistent://public/default/parts"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "amount", "type": "double"},
    ],
}
EVENT_MS = 1_700_000_000_000


class Written(Schema):  # type: ignore[misc]
    """A schema whose values are bytes already: the client has no Avro here."""

    def __init__(self) -> None:
        super().__init__(bytes, _pulsar.SchemaType.AVRO, AVRO, "Order")

    def encode(self, obj: bytes) -> bytes:
        return obj


def order(number: int, customer: str, amount: float) -> bytes:
    """Return an order in Avro; the number is below 64."""
    return bytes((number * 2, 2, len(customer) * 2)) + customer.encode() + struct.pack("<d", amount)


def plant(server: StandaloneProcess) -> pulsar.Client:
    """Make the topics; return the client, whose consumer and producers stay connected until it is closed."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(ORDERS, "audit", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=1)
    client.subscribe(ORDERS, "spare").close()
    orders = client.create_producer(
        ORDERS,
        schema=Written(),
        compression_type=pulsar.CompressionType.LZ4,
        batching_enabled=True,
        batching_max_publish_delay_ms=200,
    )
    for number in range(40):
        orders.send_async(
            order(number, f"customer {number}", number * 1.5),
            None,
            partition_key=f"key-{number % 4}",
            properties={"source": "web", "number": str(number)},
            event_timestamp=EVENT_MS + number,
        )
    orders.flush()
    raw = client.create_producer("persistent://public/default/raw", batching_enabled=False)
    for each in (b"plain text", json.dumps({"a": [1, 2]}).encode(), bytes(range(32))):
        raw.send(each)
    # A consumer that takes messages and acknowledges none, up to its limit.
    stuck = client.create_producer(STUCK, batching_enabled=False)
    web.request("POST", f"{server.web}{path(STUCK)}/maxUnackedMessagesOnConsumer", json=3).raise_for_status()
    holding = client.subscribe(STUCK, "held", consumer_type=pulsar.ConsumerType.Shared)
    for number in range(20):
        stuck.send(f"message {number}".encode())
    for _ in range(3):
        holding.receive(10_000)
    web.request("PUT", f"{server.web}{path(PARTS)}/partitions", json=3).raise_for_status()
    client.create_producer(PARTS).send(b"somewhere")
    return client


def path(topic: str) -> str:
    """Return the path of a topic in the admin REST."""
    return f"/admin/v2/{topic.replace('://', '/')}"


def stats(server: StandaloneProcess, topic: str) -> dict[str, Any]:
    """Return the statistics of a topic."""
    found: dict[str, Any] = web.get(f"{server.web}{path(topic)}/stats").json()
    return found
