"""Causes that rates, transactions, entry filters, quotas and bounds of the broker are: each is provoked and named, and
when it is removed messages flow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.explain import causes
from broker.explain.causes import Reason
from broker.explain.publishing import Publishing, explain
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.waiting import until
from tests.unit.broker.explain.asking import ask, producers, publisher
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.broker.transacting import Client, id_of
from tests.unit.broker.transacting import producer as txn_producer
from tests.unit.broker.transacting import publish as publish_in

Sub = pb.CommandSubscribe


@pytest.mark.parametrize("kind", [Sub.Shared, Sub.Exclusive])
@pytest.mark.parametrize("level", ["subscription", "topic", "broker"])
async def test_a_dispatch_rate_that_is_used_up(level: str, kind: Sub.SubType) -> None:
    options: dict[str, Any] = {f"{level}_dispatch_messages": 1}
    async with in_broker(**options) as room:
        peer = await room.connect()
        await peer.subscribe(subType=kind, consumer_name="c")
        await publisher(room, b"0", b"1")
        peer.flow(10)
        assert (await peer.message())[1] == b"0"
        found = await ask(room)
        assert (found["cause"], found["state"]) == ("dispatch-rate", "waiting")
        assert (found["details"]["rate_of"], found["details"]["rate_messages"]) == (level, 1)
        assert 900 < found["details"]["wait_ms"] <= 1000
        assert found["details"]["last_stop"] == "a rate of delivery was used up"
        assert (await peer.message())[1] == b"1"
        assert (await ask(room))["cause"] == "delivered-unacknowledged"


@pytest.mark.broker(subscribe_attempts=1, subscribe_period_s=20)
async def test_a_subscribe_rate_that_refused_the_consumer(room: Room) -> None:
    peer = await room.connect()
    await peer.subscribe(consumer_name="c")
    await publisher(room, b"0")
    peer.close_consumer(1)
    await peer.expect(pb.BaseCommand.SUCCESS)
    assert (await ask(room))["cause"] == "no-consumers"
    peer.ask_subscribe(consumer_name="c")
    assert (await peer.error())[0] == pb.NotAllowedError
    await trio.sleep(0.0006)  # what is left is rounded up
    found = await ask(room)
    assert (found["cause"], found["state"]) == ("subscribe-rate", "waiting")
    assert (found["details"]["refused"], found["details"]["rate_attempts"]) == (1, 1)
    await trio.sleep(found["details"]["wait_ms"] / 1000)
    assert (await ask(room))["cause"] == "no-consumers"
    await peer.subscribe(consumer_name="c", permits=1)
    assert (await peer.message())[1] == b"0"


@pytest.mark.parametrize("kind", [Sub.Shared, Sub.Exclusive])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.broker(transactions=True, stuck_subscription_s=60)
async def test_an_open_transaction(kind: Sub.SubType, commit: bool, room: Room) -> None:
    await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
    client, sender = await Client.of(room), await txn_producer(room)
    peer = await room.connect()
    await peer.subscribe(subType=kind, permits=10)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish_in(sender, b"0", 0)
    first = await publish_in(sender, b"1", 1, txn)
    await publish_in(sender, b"2", 2)
    got = (await peer.message())[0].message_id
    await peer.answered_ack(got)
    found = await ask(room)
    assert (found["cause"], found["state"]) == ("open-transaction", "blocked")
    assert (found["details"]["transaction"], found["details"]["held_back"]) == (f"{txn[0]}/{txn[1]}", 2)
    assert found["details"]["bound"] == f"{first.ledgerId}:{first.entryId - 1}"
    assert found["details"]["unread"] == 0
    assert not room.broker.explain.told.situation(*await _of(room)).messages_wait
    await (client.commit(txn) if commit else client.abort(txn))
    assert await peer.payloads(2 if commit else 1) == ([b"1", b"2"] if commit else [b"2"])


@pytest.mark.parametrize("cumulative", [False, True])
async def test_entries_acknowledged_in_an_open_transaction(cumulative: bool) -> None:
    """They are told as such, with the transaction; a message that no transaction has is told as unacknowledged."""
    async with in_broker(transactions=True, stuck_subscription_s=60) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        client, sender = await Client.of(room), await txn_producer(room)
        peer = await room.connect()
        kind = Sub.Exclusive if cumulative else Sub.Shared
        await peer.subscribe(subType=kind, consumer_name="c")
        peer.flow(10)
        for number in range(3):
            await publish_in(sender, b"%d" % number, number)
        places = [(await peer.message())[0].message_id for _ in range(3)]
        txn = await client.new()
        await client.add_subscription(txn, TOPIC, "s")
        acked = places[1:2] if cumulative else places[:2]
        assert not (await peer.answered_ack(*acked, cumulative=cumulative, **id_of(txn))).HasField("error")
        found = await ask(room)
        assert found["details"]["in_transactions"] == 2
        if not cumulative:
            assert (found["cause"], found["details"]["held"]) == ("delivered-unacknowledged", 1)
        acked = places[2:]
        assert not (await peer.answered_ack(*acked, cumulative=cumulative, **id_of(txn))).HasField("error")
        found = await ask(room)
        assert (found["cause"], found["state"]) == ("acknowledged-in-transaction", "blocked")
        assert (found["details"]["holder"], found["details"]["open_transactions"]) == (f"{txn[0]}/{txn[1]}", 1)
        assert f"abortTransaction/{txn[0]}/{txn[1]}" in found["remedy"]
        await client.commit(txn)
        assert (await ask(room))["cause"] == "caught-up"


async def _of(room: Room) -> tuple[Any, Any]:
    topic = await room.topic()
    return topic, topic.subscriptions["s"]


@pytest.mark.broker(transactions=True)
async def test_messages_before_an_open_transaction_wait_for_permits(room: Room) -> None:
    await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
    client, sender = await Client.of(room), await txn_producer(room)
    peer = await room.connect()
    await peer.subscribe(subType=Sub.Exclusive)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish_in(sender, b"0", 0)
    await publish_in(sender, b"1", 1, txn)
    found = await ask(room)
    assert (found["cause"], found["details"]["unread"], found["details"]["held_back"]) == ("no-permits", 1, 1)
    peer.flow(1)
    assert (await peer.message())[1] == b"0"
    assert (await ask(room))["cause"] == "open-transaction"


@pytest.mark.broker(unacked_messages_per_broker_max=10, unacked_share_when_over=0.4)
async def test_the_unacknowledged_messages_of_the_whole_broker(room: Room, peer: Peer) -> None:
    await peer.subscribe(subType=Sub.Shared, consumer_name="c", permits=100)
    await publisher(room, *[b"%d" % number for number in range(11)])
    got = [(await peer.message())[0].message_id for _ in range(10)]
    await peer.silent()
    found = await ask(room)
    assert (found["cause"], found["state"], found["details"]["consumer"]) == ("broker-unacked", "blocked", "c")
    details = found["details"]
    assert (details["broker_unacked"], details["limit"], details["share"], details["held"]) == (10, 10, 4, 10)
    peer.ack(*got[:6])
    assert (await peer.message())[1] == b"10"


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        ("maxUnackedMessagesOnConsumer", "consumer-unacked"),
        ("maxUnackedMessagesOnSubscription", "subscription-unacked"),
    ],
)
async def test_the_limit_that_is_named_is_that_of_the_policy(policy: str, cause: str, room: Room, peer: Peer) -> None:
    await peer.subscribe(subType=Sub.Shared, consumer_name="c")
    topic, subscription = await _of(room)
    rules = subscription.rules
    await room.broker.policies.update(topic.name, lambda _: {policy: 3})
    await until(lambda: subscription.rules is not rules)
    peer.flow(100)
    await publisher(room, b"0", b"1", b"2")
    got = [(await peer.message())[0].message_id for _ in range(3)]
    await publisher(room, b"3")
    found = await ask(room)
    assert (found["cause"], found["details"]["limit"]) == (cause, 3)
    peer.ack(*got)
    assert (await peer.message())[1] == b"3"


LATER = """
from pathlib import Path
from typing import Any

from broker.entry_filters import EntryFilter, FilterResult

class Later(EntryFilter):
    def filter_entry(self, entry):
        ready = (Path(__file__).parent / "ready").exists() or entry.entry_id != 1
        return FilterResult.ACCEPT if ready else FilterResult.RESCHEDULE
"""


@pytest.mark.parametrize("kind", [Sub.Shared, Sub.Exclusive, Sub.Failover])
async def test_an_entry_that_a_filter_has_rescheduled(kind: Sub.SubType, tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(LATER)
    async with in_broker(
        entry_filters_directory=str(tmp_path), entry_filter_names=("later",), filter_reschedule_delay_s=2.0
    ) as room:
        peer = await room.connect()
        await peer.subscribe(subType=kind)
        if kind == Sub.Failover:
            await peer.expect(pb.BaseCommand.ACTIVE_CONSUMER_CHANGE)
        peer.flow(10)
        sender = await publisher(room, b"0", b"1")
        got = (await peer.message())[0].message_id
        found = await ask(room)
        assert (found["cause"], found["state"]) == ("filter-rescheduled", "waiting")
        assert found["details"]["position"] == f"{got.ledgerId}:1"
        assert (found["details"]["rescheduled"], found["details"]["delay_s"]) == (1, 2.0)
        if kind != Sub.Shared:
            assert found["details"]["last_stop"] == "an entry filter has rescheduled the next entry"
        (tmp_path / "ready").touch()
        assert (await peer.message())[1] == b"1"
        await sender.publish(b"2", first=2)
        assert (await peer.message())[1] == b"2"


@pytest.mark.parametrize("level", ["topic", "broker"])
async def test_a_publish_rate_that_is_used_up(level: str) -> None:
    options: dict[str, Any] = {f"{level}_publish_messages": 1}
    async with in_broker(**options) as room:
        peer, other = await room.connect(), await room.connect()
        await other.subscribe()
        await peer.producer(producer_name="p")
        await peer.publish(b"0", b"1", b"2")
        found = await producers(room)
        assert (found["cause"], found["state"], found["details"]["producer"]) == ("publish-rate", "waiting", "p")
        assert (found["details"]["rate_of"], found["details"]["rate_messages"]) == (level, 1)
        assert 2000 < found["details"]["wait_ms"] <= 3000
        peer.send_message(b"3", 3)
        await peer.silent(0.5)
        await peer.expect(pb.BaseCommand.SEND_RECEIPT)
        await trio.sleep(10)
        assert (await producers(room))["cause"] == "flowing"


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
async def test_a_backlog_above_its_quota(policy: str) -> None:
    async with in_broker(quota_bytes=2000, quota_policy=policy) as room:
        peer, sender = await room.connect(), await room.connect()
        await peer.subscribe(name="slow", subType=Sub.Shared)
        await sender.producer()
        sent = await sender.publish(*[bytes(1000)] * 3)
        assert (await producers(room))["cause"] == "flowing"
        await room.broker.quotas.round()
        await sender.expect(pb.BaseCommand.CLOSE_PRODUCER)
        found = await producers(room)
        assert (found["cause"], found["state"], found["details"]["holder"]) == ("backlog-quota", "blocked", "slow")
        assert (found["details"]["policy"], found["details"]["quota"]) == (policy, "2000 bytes")
        assert found["details"]["backlog_bytes"] > 3000
        sender.ask_producer(producer_id=2)
        await sender.error()
        peer.ack(*sent)
        await until(lambda: room.broker.topics.loaded()[0].subscriptions["slow"].backlog == 0)
        assert (await producers(room))["cause"] == "no-producers"
        await sender.producer(producer_id=3)


def test_entries_on_their_way_hide_no_rate_that_holds_a_producer_back() -> None:
    """Found by seed 52000001 of the history `limits`: an entry was being stored as the rate was asked for."""
    throttled = Reason(
        causes.PUBLISH_RATE,
        {
            "rate_of": "topic",
            "rate_messages": 1,
            "rate_bytes": 0,
            "period_s": 1,
            "wait_ms": 5,
            "producer": "p",
            "setting": "x",
        },
    )
    facts = Publishing(topic="t", producers=("p",), pending=1, ledger_id=2)
    assert explain(replace(facts, reasons=(throttled,))).code == "publish-rate"
    assert explain(facts).code == "not-confirmed"
