"""broker.dispatch: memory of a subscription, of which a broker has tens of thousands."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.peers import Peer, Room

NAMES_MAX = 30
"""Names in the dict of an object up to which objects of a class share their keys (CPython 3.11 to 3.13): from the next
one on each dict takes 1,584 bytes instead of about 400."""


@pytest.mark.parametrize("kind", pb.CommandSubscribe.SubType.values())
async def test_the_dict_of_a_subscription_shares_its_keys_with_those_of_others(
    kind: pb.CommandSubscribe.SubType, room: Room, peer: Peer
) -> None:
    await peer.subscribe(subType=kind, permits=10)
    other = await room.connect()
    await other.producer()
    other.send_message(b"1", 0)
    await wait_all_tasks_blocked()
    [subscription] = (await room.topic()).subscriptions.values()
    assert len(vars(subscription)) <= NAMES_MAX, sorted(vars(subscription))
