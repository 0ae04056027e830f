"""Causes of a whole broker in memory: each is provoked and named, and when it is removed messages flow."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.dispatch.policies.hash_owners import range_hash
from broker.dispatch.policies.permits import Permits
from broker.dispatch.single_active import SingleActiveSubscription
from broker.explain import causes
from broker.explain.causes import Cause, Reason
from managed_ledger.trimming import Retention
from quire.ledger.errors import LedgerError
from quire.service import log
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.explain.asking import ask, ledgers, producers, publisher
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker

Sub = pb.CommandSubscribe


async def test_no_consumer_then_no_permits_then_unacknowledged_then_nothing_to_deliver(room: Room, peer: Peer) -> None:
    await peer.subscribe(subType=Sub.Shared, consumer_name="c")
    assert (await ask(room))["cause"] == "caught-up"
    await peer.end_consumer(1)
    other = await publisher(room, b"0", b"1", b"2")
    found = await ask(room)
    assert (found["cause"], found["state"]) == ("no-consumers", "blocked")
    assert found["sentence"] == "3 entries wait and no consumer is connected."

    await peer.subscribe(subType=Sub.Shared, consumer_name="c")
    found = await ask(room)
    assert (found["cause"], found["details"]["consumer"], found["details"]["permits"]) == ("no-permits", "c", 0)

    peer.flow(10)
    got = [(await peer.message())[0].message_id for _ in range(3)]
    found = await ask(room)
    assert (found["cause"], found["details"]["held"]) == ("delivered-unacknowledged", 3)

    await peer.answered_ack(*got)
    found = await ask(room)
    assert (found["cause"], found["state"]) == ("caught-up", "idle")
    await other.publish(b"3", first=3)
    assert (await peer.message())[1] == b"3"


@pytest.mark.parametrize("kind", [Sub.Exclusive, Sub.Failover])
async def test_what_the_active_consumer_holds_is_counted_in_entries(kind: Sub.SubType, room: Room, peer: Peer) -> None:
    """Statistics count nothing for these types, as the original's; an explanation must not say 0."""

    async def subscribe() -> None:
        await peer.subscribe(subType=kind, consumer_name="c")
        if kind == Sub.Failover:
            assert (await peer.receive())[0].type == C.ACTIVE_CONSUMER_CHANGE

    await subscribe()
    other = await publisher(room, b"0", b"1", b"2", b"3")
    assert (await ask(room))["sentence"].endswith("'c' has 0 permits and holds 0 unacknowledged entries.")
    peer.flow(3)
    got = [(await peer.message())[0].message_id for _ in range(3)]
    assert (await ask(room))["sentence"].endswith("'c' has 0 permits and holds 3 unacknowledged entries.")
    await peer.answered_ack(got[1])
    peer.flow(5)
    got.append((await peer.message())[0].message_id)
    found = await ask(room)
    assert (found["cause"], found["details"]["held"]) == ("delivered-unacknowledged", 3)
    assert found["sentence"].endswith("3 of them are not acknowledged, most by consumer 'c' (3 entries).")
    # Delivered again from the first: what is acknowledged behind the read position is not held.
    await peer.end_consumer(1)
    await subscribe()
    assert (await ask(room))["details"]["held"] == 0
    peer.flow(1)
    await peer.message()
    assert (await ask(room))["sentence"].endswith("'c' has 0 permits and holds 1 unacknowledged entries.")
    await peer.answered_ack(*got)
    assert (await ask(room))["cause"] == "caught-up"
    await other.publish(b"4", first=4)


async def test_entries_of_keys_that_an_exclusive_consumer_passes_over_are_said(room: Room, peer: Peer) -> None:
    own = range_hash(b"its key")
    ranges = pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=own, end=own)])
    await peer.subscribe(subType=Sub.Exclusive, consumer_name="c", keySharedMeta=ranges)
    peer.flow(10)
    await publisher(room, b"0", b"1", partition_key="another")

    async def passed() -> bool:
        return bool((await ask(room))["details"]["unread"] == 0)

    await until(passed)
    found = await ask(room)
    assert found["cause"] == "delivered-unacknowledged"
    assert found["sentence"].endswith("(2 entries, those included whose keys are outside its hash ranges).")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"unacked_messages_per_consumer_max": 2}, "consumer-unacked"),
        ({"unacked_messages_per_subscription_max": 2}, "subscription-unacked"),
    ],
)
async def test_too_many_unacknowledged_messages(options: dict[str, Any], cause: str) -> None:
    async with in_broker(**options) as room:
        peer = await room.connect()
        await peer.subscribe(subType=Sub.Shared, consumer_name="c", permits=100)
        await publisher(room, b"0", b"1")
        got = [(await peer.message())[0].message_id for _ in range(2)]
        await publisher(room, b"2")
        found = await ask(room)
        assert (found["cause"], found["details"]["consumer"], found["details"]["held"]) == (cause, "c", 2)
        assert found["details"]["limit"] == 2
        peer.ack(*got)
        assert (await peer.message())[1] == b"2"


async def test_a_key_that_another_consumer_holds(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    await first.subscribe(subType=Sub.Key_Shared, consumer_name="first", permits=5)
    keys = [f"k{number}" for number in range(20)]
    sender = await room.connect()
    await sender.producer()
    for number, key in enumerate(keys[:5]):
        await sender.publish(b"%d" % number, first=number, partition_key=key)
    got = {key: (await first.message())[0].message_id for key in keys[:5]}
    await second.subscribe(subType=Sub.Key_Shared, consumer_name="second")
    topic = await room.topic()
    policy = topic.subscriptions["s"]._policy
    moved = next(key for key in keys[:5] if policy._owner(policy.hash_of(key.encode())).consumer.name == "second")
    second.flow(100)
    await sender.publish(b"behind", first=5, partition_key=moved)
    found = await ask(room)
    assert found["cause"] == "key-held"
    assert (found["details"]["consumer"], found["details"]["owner"]) == ("first", "second")
    assert found["details"]["entries"] == 1
    first.ack(got[moved])
    assert (await second.message())[1] == b"behind"


async def test_a_key_whose_consumer_has_no_permits(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    await first.subscribe(subType=Sub.Key_Shared, consumer_name="first")
    await second.subscribe(subType=Sub.Key_Shared, consumer_name="second")
    topic = await room.topic()
    policy = topic.subscriptions["s"]._policy
    keys = (f"k{number}" for number in range(100))
    key = next(each for each in keys if policy._owner(policy.hash_of(each.encode())).consumer.name == "first")
    second.flow(10)
    await publisher(room, b"0", partition_key=key)
    found = await ask(room)
    assert (found["cause"], found["details"]["consumer"]) == ("key-consumer-busy", "first")
    assert found["details"]["obstacle"] == "no permits"
    first.flow(1)
    assert (await first.message())[1] == b"0"


async def test_delayed_messages_until_they_are_due(room: Room, peer: Peer) -> None:
    await peer.subscribe(subType=Sub.Shared, permits=10)
    now_ms = room.broker.context.world.clock.wall_ms()
    await publisher(room, b"later", deliver_at_time=now_ms + 60_000)
    found = await ask(room)
    assert (found["cause"], found["state"]) == ("delayed", "waiting")
    assert found["details"]["due_ms"] == now_ms + 60_000
    assert (await peer.message())[1] == b"later"


async def test_a_peer_that_does_not_read(room: Room, peer: Peer) -> None:
    await peer.subscribe(subType=Sub.Exclusive, consumer_name="c")
    peer.stream.window = 0
    peer.flow(1000)
    sender = await room.connect()
    await sender.producer()
    payload = bytes(900_000)
    for number in range(20):
        await sender.publish(payload, first=number)
    found = await ask(room)
    assert (found["cause"], found["details"]["consumer"]) == ("slow-connection", "c")
    peer.stream.open_window()
    assert len(await peer.payloads(20)) == 20


@pytest.mark.broker(failover_delay_s=5.0)
async def test_a_new_active_consumer_waits_a_moment(room: Room) -> None:
    first, second = await room.connect(), await room.connect()
    await first.subscribe(subType=Sub.Failover, consumer_name="a", priority_level=1)
    await publisher(room, b"0")
    await second.subscribe(subType=Sub.Failover, consumer_name="b", priority_level=0)
    subscription = (await room.topic()).subscriptions["s"]
    assert isinstance(subscription, SingleActiveSubscription)
    await until(lambda: subscription.active is not None and subscription.active.name == "b")
    found = await ask(room)
    assert (found["cause"], found["details"]["consumer"]) == ("failover-delay", "b")


async def test_producers_of_a_topic(room: Room, peer: Peer) -> None:
    await peer.subscribe()
    assert (await producers(room))["cause"] == "no-producers"
    sender = await publisher(room, b"0")
    found = await producers(room)
    assert (found["cause"], found["state"]) == ("flowing", "idle")
    waiting = await room.connect()
    waiting.ask_producer(producer_id=1, producer_name="w", producer_access_mode=pb.WaitForExclusive)
    await waiting.expect(C.PRODUCER_SUCCESS)  # not ready yet
    found = await producers(room)
    assert (found["cause"], found["details"]["waiting"]) == ("exclusive-access", "w")
    await sender.end_producer(1)
    assert (await waiting.expect(C.PRODUCER_SUCCESS)).producer_success.producer_ready


async def test_entries_that_wait_for_the_next_ledger_and_the_failure_that_keeps_it_away(room: Room) -> None:
    sender = await publisher(room, b"0")
    topic = await room.topic()
    room.cluster.ledgers.failures["create"] = [LedgerError("no bookies")] * 1000
    topic.ledger.roll()
    sender.send_message(b"1", 1)
    await trio.sleep(1)
    found = await producers(room)
    assert (found["cause"], found["details"]["trouble"]) == ("ledger-switching", "no bookies")
    assert found["details"]["pending"] == 1
    room.cluster.ledgers.failures["create"].clear()
    await sender.expect(C.SEND_RECEIPT)


@pytest.mark.broker(log={"entries_max": 2, "age_min_minutes": 0})
async def test_ledgers_are_held_by_the_slowest_subscription_then_by_retention_then_not(room: Room, peer: Peer) -> None:
    await peer.subscribe(name="slow")
    await publisher(room, *[b"%d" % number for number in range(7)])
    [held, current] = await ledgers(room)
    assert (held["cause"], current["cause"]) == ("held-by-cursor", "current-ledger")
    assert (held["details"]["cursor"], held["details"]["why"]) == ("slow", "no-permits")
    assert held["details"]["count"] == 3
    peer.flow(10)
    ids = [(await peer.message())[0].message_id for _ in range(7)]
    await peer.answered_ack(*ids)
    [kept, behind, current] = await ledgers(room)
    assert (kept["cause"], behind["cause"]) == ("held-by-retention", "behind-kept-ledger")
    assert kept["details"]["time_ms"] == -1
    topic = await room.topic()
    topic.ledger.retention = Retention()
    assert (await ledgers(room))[0]["cause"] == "trim-due"
    await topic.ledger.trim()
    assert [each["cause"] for each in await ledgers(room)] == ["current-ledger"]


class Gate:
    """A room that keeps messages back while it is closed."""

    cause = Cause("gate", causes.CauseState.BLOCKED, "The gate is closed by {who}.", "Open it.")

    def __init__(self) -> None:
        self.closed = True

    def why_not_delivered(self, topic: object, subscription: object) -> Reason | None:
        return Reason(self.cause, {"who": "the test"}, 5) if self.closed else None

    def why_not_published(self, topic: object) -> Reason | None:
        return Reason(self.cause, {"who": "the test"}) if self.closed else None


async def test_another_room_joins_with_a_cause_of_its_own(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.broker.explain.doors.append(Gate())
    peer = await room.connect()
    await peer.subscribe(subType=Sub.Shared)
    monkeypatch.setattr(Permits, "has_permits", False)  # the dispatcher obeys the gate
    peer.flow(10)
    await publisher(room, b"0")
    found = await ask(room)
    assert (found["cause"], found["sentence"], found["since_ms"]) == ("gate", "The gate is closed by the test.", 5)
    assert (await producers(room))["cause"] == "gate"


@pytest.mark.parametrize("kind", [Sub.Shared, Sub.Exclusive])
async def test_a_dispatcher_that_is_not_woken_is_told_as_stalled(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch, kind: Sub.SubType
) -> None:
    await peer.subscribe(subType=kind, consumer_name="c")
    await publisher(room, b"0")
    topic = await room.topic()
    subscription = topic.subscriptions["s"]
    monkeypatch.setattr(subscription, "pump", lambda: None)
    peer.flow(10)
    await until(lambda: subscription.permits_of(next(iter(subscription.consumers))) == 10)
    found = await ask(room)
    assert (found["cause"], found["state"], found["details"]["consumer"]) == ("stalled", "stuck", "c")
    assert found["details"]["last_stop"] == "no consumer had permits and room"
    monkeypatch.undo()
    subscription.pump()
    room.broker.context.turn.flush()
    assert (await peer.message())[1] == b"0"


async def test_the_log_says_once_in_a_while_why_messages_wait() -> None:
    options: dict[str, Any] = {
        "unacked_messages_per_consumer_max": 1,
        "stuck_subscription_s": 60,
        "keep_alive_interval_s": 10_000,
    }
    with log.captured() as events:
        async with in_broker(**options, stuck_subscription_log_interval_s=600) as room:
            peer, sender = await room.connect(), await publisher(room)
            await peer.subscribe(subType=Sub.Shared, consumer_name="c", permits=100)
            await sender.publish(b"0")
            await sender.publish(b"1", first=1)
            since = room.broker.context.world.clock.wall_ms()
            await trio.sleep(50)
            assert not _told(events)
            await trio.sleep(30)
            [told] = _told(events)
            assert (told["level"], told["reason"], told["topic"]) == ("info", "consumer-unacked", TOPIC)
            assert 0 <= told["since_ms"] - since <= 5_000
            assert (await ask(room))["since_ms"] == told["since_ms"]
            await trio.sleep(500)
            assert len(_told(events)) == 1
            await trio.sleep(120)
            assert len(_told(events)) == 2


def _told(events: list[log.Event]) -> list[log.Event]:
    return [event for event in events if event["event"].startswith("messages wait")]


async def test_consumers_without_permits_are_no_case_for_the_log() -> None:
    with log.captured() as events:
        async with in_broker(stuck_subscription_s=60, keep_alive_interval_s=10_000) as room:
            peer = await room.connect()
            await peer.subscribe(subType=Sub.Shared)
            await publisher(room, b"0")
            await trio.sleep(200)
            assert not _told(events)
