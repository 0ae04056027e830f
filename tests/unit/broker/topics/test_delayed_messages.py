"""Delayed messages through a whole broker: publishing, policies, unload, unsubscribe, metrics."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.dispatch.delayed import delays
from broker.dispatch.delayed.delays import Delays
from managed_ledger.entry_run import EntryRun
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room
from tests.unit.broker.scraped import Scraped

NAMESPACE = "/admin/policies/public/default"


def now_ms(room: Room) -> int:
    return room.broker.context.world.clock.wall_ms()


def later(room: Room, seconds: float) -> dict[str, Any]:
    now = now_ms(room)
    return {"publish_time": now, "deliver_at_time": now + round(seconds * 1000)}


async def on_topic(room: Room, *, permits: int = 100, kind: SUB.SubType = SUB.Shared) -> Peer:
    peer = await room.connect()
    await peer.producer()
    await peer.subscribe(subType=kind, permits=permits)
    return peer


async def send_refused(peer: Peer, **metadata: Any) -> str:
    peer.send_message(b"x", 7, **metadata)
    error = (await peer.expect(C.SEND_ERROR)).send_error
    assert (error.sequence_id, error.error) == (7, pb.NotAllowedError)
    return error.message


@pytest.mark.broker(delayed_max_ms=5000)
async def test_a_message_with_a_longer_delay_than_allowed_is_refused(room: Room) -> None:
    peer = await on_topic(room)
    assert "the delay of 5001 ms is above the allowed one of 5000 ms" in await send_refused(peer, **later(room, 5.001))
    await peer.publish(b"0", b"1", **later(room, 5))
    await peer.publish(b"now")
    assert await peer.payloads(1) == [b"now"]
    await trio.sleep(6.1)
    assert await peer.payloads(2) == [b"0", b"1"]


async def test_the_policies_of_the_namespace_count_from_their_change_on(room: Room) -> None:
    peer = await on_topic(room)
    await peer.publish(b"waits", **later(room, 3600))
    assert await peer.silent(2)
    store = room.cluster.stores[0]
    await store.put(
        NAMESPACE,
        b'{"delayed_delivery_policies":{"tickTime":1000,"active":true,"maxDeliveryDelayInMillis":2000}}',
        -1,
    )
    await wait_all_tasks_blocked()
    assert "the allowed one of 2000 ms" in await send_refused(peer, **later(room, 3))
    assert await peer.silent(20)
    await store.put(NAMESPACE, b'{"delayed_delivery_policies":{"tickTime":1000,"active":false}}', -1)
    await wait_all_tasks_blocked()
    await peer.publish(b"at once", **later(room, 3600))
    assert sorted(await peer.payloads(2)) == [b"at once", b"waits"]


@pytest.mark.parametrize("kind", [SUB.Shared, SUB.Key_Shared])
async def test_what_is_delayed_waits_on_after_the_topic_was_loaded_again(kind: SUB.SubType, room: Room) -> None:
    """So little of the index is not stored: it is built again from the log."""
    peer = await on_topic(room, kind=kind)
    sent = trio.current_time()
    await peer.publish(*[b"%d" % number for number in range(50)], **later(room, 30))
    await peer.publish(b"now")
    [message] = await peer.payloads(1)
    assert message == b"now"
    [topic] = room.broker.topics.loaded()
    room.broker.topics.close_soon(topic)
    await until(lambda: not room.broker.topics.loaded())
    again = await room.connect()
    await again.subscribe(subType=kind, permits=100)
    assert await again.payloads(1) == [b"now"]
    assert await again.silent(25)
    assert len(await again.payloads(50)) == 50
    assert 29 <= trio.current_time() - sent <= 31.5


@pytest.mark.parametrize("kind", [SUB.Shared, SUB.Key_Shared])
async def test_a_restart_reads_only_what_came_after_the_index_was_stored(
    kind: SUB.SubType, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stored when the topic is closed, as after a kill."""
    monkeypatch.setattr(delays, "STORED_AFTER_MIN", 2000)
    peer = await on_topic(room, kind=kind)
    for number in range(30):
        await peer.publish(*[b"%d" % each for each in range(100 * number, 100 * number + 100)], **later(room, 50))
    await until(lambda: stored_index(room) != b"")
    await peer.publish(*[b"%d" % each for each in range(3000, 3100)], **later(room, 40))
    assert await peer.silent(1)
    found: list[int] = []
    whole = Delays.find

    def find(self: Delays, run: EntryRun) -> list[tuple[int, int]]:
        found.append(len(run.payloads))
        return whole(self, run)

    monkeypatch.setattr(Delays, "find", find)
    monkeypatch.setattr(Delays, "store_last", lambda self: None)
    await reloaded(room)
    peer = await room.connect()
    await peer.subscribe(subType=kind)
    peer.flow(5000)
    assert await peer.silent(5)
    assert 100 <= sum(found) <= 1200
    [topic] = room.broker.topics.loaded()
    assert [subscription.delayed for subscription in topic.subscriptions.values()] == [3100]
    await trio.sleep(45)
    numbers = [int(payload) for payload in await peer.payloads(3100)]
    assert sorted(numbers) == list(range(3100))
    assert set(numbers[:100]) == set(range(3000, 3100)), "in the order of their times"
    assert await peer.silent(5)


async def test_a_topic_that_is_closed_stores_its_index_and_what_was_acknowledged_since_is_not_delivered(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "STORED_LAST_MIN", 10)
    peer = await on_topic(room)
    await peer.publish(*[b"%d" % number for number in range(50)], **later(room, 30))
    assert stored_index(room) == b""
    await reloaded(room)
    peer = await room.connect()
    await peer.subscribe(subType=SUB.Shared)
    stored = stored_index(room)
    assert stored != b""
    peer.flow(20)
    await trio.sleep(35)
    await peer.message()  # not acknowledged
    for _ in range(19):
        message, _ = await peer.message()
        peer.ack(message.message_id)
    await wait_all_tasks_blocked()
    monkeypatch.setattr(Delays, "store_last", lambda self: None)
    await reloaded(room)
    peer = await room.connect()
    await peer.subscribe(subType=SUB.Shared)
    assert stored_index(room) == stored
    [topic] = room.broker.topics.loaded()
    assert [subscription.delayed for subscription in topic.subscriptions.values()] == [31]
    peer.flow(100)
    assert len(await peer.payloads(31)) == 31
    assert await peer.silent(20)


def stored_index(room: Room) -> bytes:
    """Return the stored index of the only subscription."""
    [topic] = room.broker.topics.loaded()
    [subscription] = topic.subscriptions.values()
    return subscription.cursor.delayed_index


async def reloaded(room: Room) -> None:
    """Close the topic; the next use loads it again."""
    [topic] = room.broker.topics.loaded()
    room.broker.topics.close_soon(topic)
    await until(lambda: not room.broker.topics.loaded())


async def test_an_exclusive_consumer_gets_what_a_shared_one_had_to_wait_for(room: Room) -> None:
    peer = await on_topic(room)
    await peer.publish(b"0", **later(room, 60))
    assert await peer.silent(2)
    await peer.end_consumer()
    await peer.subscribe(subType=SUB.Exclusive, permits=10)
    message, payload = await peer.message()
    assert payload == b"0"
    await peer.end_consumer()
    await peer.subscribe(subType=SUB.Shared, permits=10)
    assert await peer.silent(50), "it was not acknowledged, and waits again"
    peer.ack(message.message_id)
    assert await peer.silent(60)


async def test_unsubscribing_ends_the_wait(room: Room) -> None:
    peer = await on_topic(room)
    await peer.publish(b"0", **later(room, 5))
    await peer.end_subscription()
    assert await peer.silent(10)
    await peer.subscribe(subType=SUB.Shared, initialPosition=pb.CommandSubscribe.Latest, permits=10)
    assert await peer.silent(10)


async def test_what_waits_is_counted(room: Room) -> None:
    scraped = Scraped(room)
    peer = await on_topic(room)
    await peer.publish(b"0", b"1", b"2", **later(room, 5))
    await peer.publish(b"now")
    assert await peer.payloads(1) == [b"now"]
    assert scraped["pulsar_subscription_delayed"] == 3
    assert scraped["pulsar_subscription_back_log"] == 4
    assert scraped["pulsar_delayed_message_index_size_bytes"] > 0
    await trio.sleep(6.1)
    assert len(await peer.payloads(3)) == 3
    assert scraped["pulsar_subscription_delayed"] == 0
    assert scraped["pulsar_delayed_message_index_size_bytes"] == 0
    assert TOPIC in [topic.name.full for topic in room.broker.topics.loaded()]
