"""The end of a transaction holds the event loop in none of its steps, whatever was acknowledged or sent in it
(`broker.transactions`). Steps are measured in calls, as in test_largest_arguments.py.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from broker.transactions.pending_state import ENTRIES_IN_STEP
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import TOPIC, Room, in_broker
from tests.unit.broker.transacting import Client, id_of, producer, publish

MESSAGES = 5 * ENTRIES_IN_STEP
TOPICS = 100


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        yield room


async def ended(room: Room, client: Client, txn: tuple[int, int], *, commit: bool) -> Steps:
    """Return the steps of the end of a transaction."""
    steps = Steps(trio.lowlevel.current_task(), real=False)
    trio.lowlevel.add_instrument(steps)
    await (client.commit(txn) if commit else client.abort(txn))
    await trio.testing.wait_all_tasks_blocked()
    trio.lowlevel.remove_instrument(steps)
    sys.setprofile(None)
    return steps


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared], ids=["exclusive", "shared", "key_shared"])
async def test_the_end_of_many_acknowledgements_is_applied_in_steps(kind: Any, commit: bool, room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await room.connect()
    for first in range(0, MESSAGES, 1000):
        await sender.publish(*[b"m"] * 1000, first=first)
    await reader.subscribe(TOPIC, subType=kind, permits=MESSAGES)
    ids = [(await reader.message())[0].message_id for _ in range(MESSAGES)]
    txn = await client.new()
    await client.add_subscription(txn)
    for at in range(0, MESSAGES, 1000):
        body = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids[at : at + 1000])
        body.request_id, body.txnid_most_bits, body.txnid_least_bits = at + 5000, *id_of(txn).values()
        reader.send(C(type=C.ACK, ack=body))
        await reader.expect(C.ACK_RESPONSE)
    steps = await ended(room, client, txn, commit=commit)
    assert steps.longest <= CALLS_MAX, f"{steps.longest:.0f} calls in one step of {steps.where}"
    assert (await room.topic()).subscriptions["s"].backlog == (0 if commit else MESSAGES)
    if not commit:
        reader.flow(MESSAGES)
        found = [(await reader.message())[0].message_id for _ in range(MESSAGES)]
        again = [(each.ledgerId, each.entryId) for each in found]
        assert again == sorted(again), "in the order of the log"
        assert len(set(again)) == MESSAGES
    assert await reader.silent()


async def test_the_end_of_messages_in_many_topics_is_told_in_steps(room: Room) -> None:
    client = await Client.of(room)
    topics = [f"{TOPIC}-{number}" for number in range(TOPICS)]
    txn = await client.new()
    await client.add_partition(txn, *topics)
    for topic in topics:
        await publish(await producer(room, topic), b"m", 0, txn)
    steps = await ended(room, client, txn, commit=True)
    assert steps.longest <= CALLS_MAX / 10, f"{steps.longest:.0f} calls in one step of {steps.where}"
