from __future__ import annotations

import pytest
import trio

from quire.client.client import Client
from quire.client.deliveries import Deliveries
from quire.client.errors import ClientError, ClosedError
from quire.client.message_id import MessageId
from quire.client.reader import Reader
from quire.client.receiving import FIRST_PART
from tests.support.pulsar_frames import entry
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.client.fake_broker import TOPIC, B, FakeBroker, story

pytestmark = pytest.mark.seeded


def entries(count: int, size: int = 20, **fields: int) -> list[bytes]:
    return [entry(b"%d" % n + bytes(size), sequence_id=n, **fields) for n in range(count)]


async def take(reader: Reader, count: int) -> Deliveries:
    """Return `count` entries; no more may arrive."""
    found = Deliveries()
    while len(found) < count:
        got = await reader.receive()
        assert len(got) > 0
        found.ledger_ids += got.ledger_ids
        found.entry_ids += got.entry_ids
        found.entries += got.entries
    assert len(found) == count
    return found


async def test_the_broker_may_send_no_more_than_the_window_before_something_is_taken(
    client: Client, broker: FakeBroker
) -> None:
    broker.append(*entries(100))
    reader = await client.reader(TOPIC, MessageId.EARLIEST, window=10)
    consumer = broker.consumers[0]
    taken = 0
    while taken < 100:
        await trio.sleep(1)
        assert consumer.next <= taken + 10
        assert reader.queued_bytes > 0
        taken += len(await reader.receive())


async def test_permits_count_the_messages_of_a_batch(client: Client, broker: FakeBroker) -> None:
    broker.append(*entries(4, num_messages_in_batch=100))
    reader = await client.reader(TOPIC, MessageId.EARLIEST, window=160)
    await take(reader, 4)
    await until(lambda: sum(each.flow.messagePermits for each in broker.of(B.FLOW)) >= 400 + 160)
    assert sum(each.flow.messagePermits for each in broker.of(B.FLOW)) == 400 + 160


async def test_large_messages_get_fewer_permits_than_the_window() -> None:
    async with story(receive_bytes_max=100_000) as (client, broker):
        broker.append(*entries(200, size=10_000))
        reader = await client.reader(TOPIC, MessageId.EARLIEST, window=1000)
        taken = len(await reader.receive())
        while taken < 200:
            await trio.sleep(1)
            taken += len(await reader.receive())
        first, *others = (each.flow.messagePermits for each in broker.of(B.FLOW))
        assert first == 1000 // FIRST_PART
        assert others
        assert max(others) <= 10


async def test_after_a_loss_it_goes_on_behind_the_last_entry_that_came(client: Client, broker: FakeBroker) -> None:
    stored = entries(300)
    broker.append(*stored[:100])
    reader = await client.reader(TOPIC, MessageId.EARLIEST, window=50)
    found: list[bytes] = []
    for _ in range(8):
        found += (await reader.receive()).entries
        broker.drop()
        broker.append(*stored[len(broker.entries) : len(broker.entries) + 25])
    while len(found) < 300:
        found += (await reader.receive()).entries
    assert found == stored
    assert len(broker.of(B.SUBSCRIBE)) > 5


@pytest.mark.seeded(0)
async def test_what_waits_in_the_queue_has_its_permits_already_after_a_loss(client: Client, broker: FakeBroker) -> None:
    broker.append(*entries(100))
    reader = await client.reader(TOPIC, MessageId.EARLIEST, window=20)
    await take(reader, 2)  # a first part of the window
    await until(lambda: broker.consumers[0].permits == 0 and broker.consumers[0].next == 22)
    broker.drop()
    await until(lambda: len(broker.of(B.SUBSCRIBE)) == 2)
    await trio.sleep(1)
    # 20 wait in the queue: no more permits are sent, not even for the one that is delivered again.
    assert broker.consumers[0].next == 21
    await take(reader, 20)


async def test_an_answer_arrives_though_nobody_takes_what_the_reader_has_queued() -> None:
    async with story(receive_bytes_max=2000) as (client, broker):
        broker.append(*entries(400, size=1000))
        reader = await client.reader(TOPIC, MessageId.EARLIEST, window=400)
        await until(lambda: reader.queued_bytes > 2000)
        await trio.sleep(1)
        assert (await reader.last_message_id()).entry_id == 399
        await take(reader, 400)


async def test_a_connection_is_not_read_while_too_much_waits_to_be_taken_and_is_not_lost_for_it() -> None:
    async with story(receive_bytes_max=1_000_000, keep_alive_interval_s=10) as (client, broker):
        broker.append(*entries(40, size=200_000))
        reader = await client.reader(TOPIC, MessageId.EARLIEST, window=1000)
        await trio.sleep(200)
        assert 1_000_000 < reader.queued_bytes < 2_000_000
        assert broker.connections == 1
        assert len(broker.of(B.PING)) > 5
        await take(reader, 40)


async def test_waiting_for_messages_has_no_deadline_while_the_broker_is_there() -> None:
    async with story(operation_timeout_s=10, keep_alive_interval_s=5) as (client, broker):
        reader = await client.reader(TOPIC, MessageId.EARLIEST)
        with trio.move_on_after(1000) as patience:
            await reader.receive()
        assert patience.cancelled_caught
        assert broker.connections == 1


async def test_close_tells_the_broker_and_may_be_called_twice(client: Client, broker: FakeBroker) -> None:
    broker.append(*entries(50))
    reader = await client.reader(TOPIC, MessageId.EARLIEST)
    await until(lambda: reader.queued_bytes > 0)
    await reader.close()
    await reader.close()
    assert len(broker.of(B.CLOSE_CONSUMER)) == 1
    assert broker.consumers == []
    await raises(ClosedError, reader.receive(), "closed")


async def test_a_reader_that_waits_is_woken_when_it_is_closed() -> None:
    async with story() as (client, _):
        reader = await client.reader(TOPIC, MessageId.EARLIEST)
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                await raises(ClientError, reader.receive(), "closed")

            nursery.start_soon(wait)
            await trio.sleep(1)
            await reader.close()
