"""A quiet load: producers at a constant rate, consumers that keep up, topics without traffic, a delayed subscription.

Nothing of it is a fault: an alert that fires under it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from quire.client.client import Client, open_client
from quire.client.consumer import Consumer, ConsumerOptions
from quire.client.packing import pack
from quire.client.producer import Producer
from quire.world.real import real_world

SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
PAYLOAD: Final = b"q" * 500
NAMESPACE: Final = "persistent://public/default"
SPARK_SUBSCRIPTION: Final = "spark-orders"
"""A subscription without consumers that is moved on by its owner, as the one of a streaming query."""
BATCH_S: Final = 2.0
VISIT_S: Final = 2.0
VISITED: Final = 50
"""Topics of clients that come and go."""


@dataclass(slots=True)
class Counts:
    """Messages of the load so far."""

    published: int = 0
    consumed: int = 0


async def quiet_load(service_url: str, counts: Counts, *, topics: int = 4, rate: float = 40.0) -> None:
    """Publish and consume until cancelled; `rate` is messages per second over all topics. Raises ClientError."""
    async with open_client(real_world(), service_url) as client, trio.open_nursery() as nursery:
        for number in range(topics):
            kind = SUBSCRIPTION_TYPES[number % len(SUBSCRIPTION_TYPES)]
            topic = f"{NAMESPACE}/quiet-{number}"
            consumer = await client.consumer(topic, "worker", ConsumerOptions(type=kind, earliest=True, window=100))
            producer = await client.producer(topic)
            nursery.start_soon(_consume, consumer, counts)
            nursery.start_soon(_publish, producer, counts, topics / rate)
        await client.consumer(f"{NAMESPACE}/idle", "worker")
        nursery.start_soon(_stream, client, f"{NAMESPACE}/quiet-0")
        nursery.start_soon(_visit, client)


async def _publish(producer: Producer, counts: Counts, pause_s: float) -> None:
    while True:
        await producer.send(pack([PAYLOAD]))
        await producer.flush()
        counts.published += 1
        await trio.sleep(pause_s)


async def _consume(consumer: Consumer, counts: Counts) -> None:
    while True:
        taken = await acknowledge_next(consumer)
        counts.consumed += taken


async def acknowledge_next(consumer: Consumer) -> int:
    """Acknowledge the entries that come next; return their number."""
    deliveries = await consumer.receive()
    ids = list(zip(deliveries.ledger_ids, deliveries.entry_ids, strict=True))
    consumer.acknowledge(ids)
    return len(ids)


async def _stream(client: Client, topic: str) -> None:
    """Advance a durable subscription in steps, as a streaming query does with its batches."""
    subscription = await client.subscription(topic, SPARK_SUBSCRIPTION)
    while True:
        await trio.sleep(BATCH_S)
        await subscription.acknowledge(await subscription.last_message_id())


async def _visit(client: Client) -> None:
    """Open producers of one topic after the other, and close them."""
    number = 0
    while True:
        producer = await client.producer(f"{NAMESPACE}/visited-{number % VISITED}")
        await producer.close()
        number += 1
        await trio.sleep(VISIT_S)
