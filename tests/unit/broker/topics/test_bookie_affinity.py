"""Ledgers of a namespace with groups of bookies: their custom metadata names the groups, from the next ledger on."""

from __future__ import annotations

import json
from typing import Any

import trio.testing

from managed_ledger.config import LogConfigSource
from quire.ledger.placement.isolation import BookieGroups, groups_of
from quire.metadata.store import ANY_VERSION
from tests.unit.broker.peers import TOPIC, Room, in_broker

PATH = "/admin/local-policies/public/default"


async def asked(name: str) -> LogConfigSource:
    raise AssertionError(f"the broker has the policies of {name} already")


async def set_local(room: Room, **fields: Any) -> None:
    store, value = room.cluster.stores[0], json.dumps(fields).encode()
    if await store.get(PATH) is None:
        await store.create(PATH, value, make_parents=True)
    else:
        await store.put(PATH, value, ANY_VERSION)
    await trio.testing.wait_all_tasks_blocked()


def groups(room: Room) -> dict[int, BookieGroups | None]:
    return {each: groups_of(stored.custom_metadata) for each, stored in room.cluster.ledgers.stored.items()}


async def test_ledgers_of_topics_and_of_cursors_name_the_groups_of_their_namespace() -> None:
    async with in_broker(log={"config_of": asked}) as room:
        await set_local(room, bookieAffinityGroup={"bookkeeperAffinityGroupPrimary": "a,b"})
        peer = await room.connect()
        await peer.subscribe(permits=10)
        await peer.producer()
        sent = await peer.publish(b"1")
        await peer.message()
        await peer.answered_ack(*sent)
        assert len(groups(room)) >= 2
        assert set(groups(room).values()) == {BookieGroups(frozenset("ab"))}


async def test_the_next_ledger_follows_a_change_and_one_that_cannot_be_read_is_none() -> None:
    async with in_broker(log={"config_of": asked}) as room:
        await set_local(room)
        peer = await room.connect()
        await peer.producer()
        await peer.publish(b"1")
        assert set(groups(room).values()) == {None}
        names = {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "c"}
        for count, (value, wanted) in enumerate(
            [(names, BookieGroups(frozenset("a"), frozenset("c"))), ({"bookkeeperAffinityGroupPrimary": 5}, None)], 2
        ):
            await set_local(room, bookieAffinityGroup=value)
            room.broker.topics.close_soon(await room.topic())
            await trio.testing.wait_all_tasks_blocked()
            peer = await room.connect()
            await peer.producer(TOPIC)
            await peer.publish(b"%d" % count)
            newest = max(groups(room))
            assert groups(room)[newest] == wanted
