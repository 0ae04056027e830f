"""quire.client with a real standalone server that the official client uses too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

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
from tests.support import web
from tests.support.refusals import raises
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import until

pytestmark = pytest.mark.real_clock(seconds=60)


@pytest.fixture
async def ours(server: StandaloneProcess) -> AsyncIterator[Client]:
    async with open_client(real_world(), server.url) as client:
        yield client


async def publish(client: Client, topic: str, values: list[bytes], *, batch: bool = False) -> MessageId:
    """Publish the values; return the id of the last message."""
    producer = await client.producer(topic)
    await producer.send(pack(values, [None] * len(values), None, None, batch=batch))
    await producer.flush()
    await producer.close()
    return producer.last_ids


async def read(reader: Reader, count: int) -> list[bytes]:
    """Return the payloads of `count` entries; no more may have arrived."""
    found: list[bytes] = []
    while len(found) < count:
        found += [bytes(entry[metadata_span(entry)[1] :]) for entry in (await reader.receive()).entries]
    assert len(found) == count
    return found


async def test_what_is_sent_is_read_by_ours_and_by_the_official_client(
    ours: Client, client: pulsar.Client, topic: str
) -> None:
    values = [b"%d" % number + bytes(number % 50 * 40) for number in range(3000)] + [bytes(2 << 20)]
    last = await publish(ours, topic, values)
    reader = await ours.reader(topic, MessageId.EARLIEST)
    found = await reader.last_message_id()
    assert (found.ledger_id, found.entry_id) == (last.ledger_id, last.entry_id)
    assert await read(reader, len(values)) == values
    await reader.close()
    theirs = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [theirs.read_next(timeout_millis=10_000).data() for _ in values] == values


async def test_a_position_from_one_read_is_the_start_of_the_next(ours: Client, topic: str) -> None:
    last = await publish(ours, topic, [b"%d" % number for number in range(100)])
    middle = await ours.reader(topic, MessageId(last.ledger_id, 60))
    assert await read(middle, 40) == [b"%d" % number for number in range(60, 100)]
    end = await ours.reader(topic, MessageId(last.ledger_id, 100))  # the next entry, which is not there yet
    at_end = await ours.reader(topic, MessageId.LATEST)
    await publish(ours, topic, [b"new"])
    assert await read(end, 1) == [b"new"]
    assert await read(at_end, 1) == [b"new"]


async def test_a_subscription_holds_and_moves(ours: Client, client: pulsar.Client, topic: str) -> None:
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
    consumer = client.subscribe(topic, "hold")
    assert consumer.receive(timeout_millis=10_000).data() == b"30"


async def test_a_subscription_is_waited_for_until_its_holder_goes(server: StandaloneProcess, topic: str) -> None:
    async with open_client(real_world(), server.url, ClientOptions(operation_timeout_s=2)) as ours:
        held = await ours.subscription(topic, "hold")
        await raises(ConsumerBusyError, ours.subscription(topic, "hold"), "hold")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.subscription, topic, "hold")
            await trio.sleep(0.2)
            await held.close()


async def test_a_topic_that_does_not_exist_is_not_made_by_reading_it(ours: Client, topic: str) -> None:
    await raises(TopicNotFoundError, ours.reader(topic, MessageId.EARLIEST))
    await raises(TopicNotFoundError, ours.partitions("persistent://no/such/topic"))


async def test_official_batches_count_in_permits(ours: Client, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
    for number in range(5000):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    reader = await ours.reader(topic, MessageId.EARLIEST, window=60)
    last = await reader.last_message_id()
    await read(reader, last.entry_id + 1)


async def test_nothing_is_lost_or_doubled_when_the_server_is_killed(tmp_path: Path) -> None:
    topic = "persistent://public/default/killed"
    with standalone(tmp_path) as server:
        async with open_client(real_world(), server.url) as ours:
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
                await until(lambda: places and places[-1] >= (last.ledger_id, last.entry_id))
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


async def test_batches_to_a_topic_with_deduplication_are_all_stored_and_a_known_name_continues(
    ours: Client, client: pulsar.Client, server: StandaloneProcess, topic: str
) -> None:
    name = topic.rpartition("/")[2]
    await (await ours.producer(topic)).close()
    policy = f"{server.web}/admin/v2/persistent/public/default/{name}/deduplicationEnabled"
    web.request("POST", policy, json=True).raise_for_status()
    values = [b"%d" % number for number in range(60)]
    for begin, last_id in ((0, -1), (30, 28)):  # the broker has the number of the last batch, which has two messages
        producer = await ours.producer(topic, name="ours")
        assert producer.last_sequence_id == last_id
        for first in range(begin, begin + 30, 10):
            await producer.send(pack(values[first : first + 10], batch_messages_max=4))
        await producer.flush()
        await producer.close()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [(await trio.to_thread.run_sync(reader.read_next, 20_000)).data() for _ in values]
    assert found == values
    reader.close()
