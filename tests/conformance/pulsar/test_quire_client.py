"""quire.client against a real standalone server, beside the official client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pulsar
import pytest
import trio

from quire.client.client import Client, open_client
from quire.client.errors import ConsumerBusyError, TopicNotFoundError
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.packing import pack
from quire.client.reader import Reader
from quire.wire.pulsar.metadata import metadata_span
from quire.world.real import real_world
from tests.support.server import StandaloneProcess, standalone

T = TypeVar("T")
PATIENCE_S = 60


def with_client(url: str, body: Callable[[Client], Awaitable[T]], **options: float) -> T:
    async def main() -> T:
        with trio.fail_after(PATIENCE_S):
            async with open_client(real_world(), url, ClientOptions(**options)) as client:  # type: ignore[arg-type]
                return await body(client)

    return trio.run(main)


async def publish(client: Client, topic: str, values: list[bytes], *, batch: bool = False) -> MessageId:
    """The place of the last."""
    producer = await client.producer(topic)
    await producer.send(pack(values, [None] * len(values), None, None, batch=batch))
    await producer.flush()
    await producer.close()
    return producer.last_ids


async def read(reader: Reader, count: int) -> list[bytes]:
    """Payloads of `count` entries, which must be all that have come."""
    found: list[bytes] = []
    while len(found) < count:
        found += [bytes(entry[metadata_span(entry)[1] :]) for entry in (await reader.receive()).entries]
    assert len(found) == count
    return found


def test_what_is_sent_is_read_by_ours_and_by_the_official_client(
    server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    values = [b"%d" % number + bytes(number % 50 * 40) for number in range(3000)] + [bytes(2 << 20)]

    async def body(ours: Client) -> None:
        last = await publish(ours, topic, values)
        reader = await ours.reader(topic, MessageId.EARLIEST)
        found = await reader.last_message_id()
        assert (found.ledger_id, found.entry_id) == (last.ledger_id, last.entry_id)
        assert await read(reader, len(values)) == values
        await reader.close()

    with_client(server.url, body)
    theirs = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [theirs.read_next(timeout_millis=10_000).data() for _ in values] == values


def test_a_position_from_one_read_is_the_start_of_the_next(server: StandaloneProcess, topic: str) -> None:
    async def body(ours: Client) -> None:
        last = await publish(ours, topic, [b"%d" % number for number in range(100)])
        middle = await ours.reader(topic, MessageId(last.ledger_id, 60))
        assert await read(middle, 40) == [b"%d" % number for number in range(60, 100)]
        end = await ours.reader(topic, MessageId(last.ledger_id, 100))  # the next entry, which is not there yet
        at_end = await ours.reader(topic, MessageId.LATEST)
        await publish(ours, topic, [b"new"])
        assert await read(end, 1) == [b"new"]
        assert await read(at_end, 1) == [b"new"]

    with_client(server.url, body)


def test_a_subscription_holds_and_moves(server: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    async def body(ours: Client) -> None:
        held = await ours.subscription(topic, "hold")
        last = await publish(ours, topic, [b"%d" % number for number in range(100)])
        assert (await held.mark_delete()).entry_id == -1
        await held.acknowledge(MessageId(last.ledger_id, 49))
        assert await held.mark_delete() == MessageId(last.ledger_id, 49)
        await held.seek(MessageId(last.ledger_id, 30))
        assert await held.mark_delete() == MessageId(last.ledger_id, 29)
        other = await ours.subscription(topic, "other", start=MessageId(last.ledger_id, 70))
        assert await other.mark_delete() == MessageId(last.ledger_id, 69)
        await other.unsubscribe()
        await held.close()

    with_client(server.url, body)
    consumer = client.subscribe(topic, "hold")
    assert consumer.receive(timeout_millis=10_000).data() == b"30"


def test_a_subscription_is_waited_for_until_its_holder_goes(server: StandaloneProcess, topic: str) -> None:
    async def body(ours: Client) -> None:
        held = await ours.subscription(topic, "hold")
        with pytest.raises(ConsumerBusyError, match="hold"):
            await ours.subscription(topic, "hold")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.subscription, topic, "hold")
            await trio.sleep(0.2)
            await held.close()

    with_client(server.url, body, operation_timeout_s=2)


def test_a_topic_that_does_not_exist_is_not_made_by_reading_it(server: StandaloneProcess, topic: str) -> None:
    async def body(ours: Client) -> None:
        with pytest.raises(TopicNotFoundError):
            await ours.reader(topic, MessageId.EARLIEST)
        with pytest.raises(TopicNotFoundError):
            await ours.partitions("persistent://no/such/topic")

    with_client(server.url, body)


def test_official_batches_count_in_permits(server: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
    for number in range(5000):
        producer.send_async(b"%d" % number, None)
    producer.flush()

    async def body(ours: Client) -> None:
        reader = await ours.reader(topic, MessageId.EARLIEST, window=60)
        last = await reader.last_message_id()
        await read(reader, last.entry_id + 1)

    with_client(server.url, body)


def test_nothing_is_lost_or_doubled_when_the_server_is_killed(tmp_path: Path) -> None:
    topic = "persistent://public/default/killed"
    with standalone(tmp_path) as server:

        async def body(ours: Client) -> None:
            producer = await ours.producer(topic)
            reader = await ours.reader(topic, MessageId.EARLIEST)
            held = await ours.subscription(topic, "hold")
            places: list[tuple[int, int]] = []
            numbers: list[int] = []

            async def follow() -> None:
                while True:
                    got = await reader.receive()
                    places.extend(zip(got.ledger_ids, got.entry_ids, strict=True))
                    numbers.extend(int(entry[metadata_span(entry)[1] :]) for entry in got.entries)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                for round_ in range(2):
                    for first in range(round_ * 2000, round_ * 2000 + 2000, 50):
                        values = [b"%d" % number for number in range(first, first + 50)]
                        await producer.send(pack(values, [None] * 50, None, None, batch=False))
                    if round_ == 0:
                        await trio.to_thread.run_sync(server.kill)
                        await trio.to_thread.run_sync(server.start)
                await producer.flush()
                last = producer.last_ids
                while not places or places[-1] < (last.ledger_id, last.entry_id):  # noqa: ASYNC110 - a deadline is set
                    await trio.sleep(0.01)
                again = await ours.reader(topic, MessageId.EARLIEST)
                everything: list[tuple[int, int]] = []
                while len(everything) < len(places):
                    got = await again.receive()
                    everything.extend(zip(got.ledger_ids, got.entry_ids, strict=True))
                assert everything == places == sorted(set(places))
                assert sorted(set(numbers)) == list(range(4000))
                await held.acknowledge(last)
                await trio.to_thread.run_sync(server.kill)
                await trio.to_thread.run_sync(server.start)
                assert await held.mark_delete() >= last
                nursery.cancel_scope.cancel()

        with_client(server.url, body)
