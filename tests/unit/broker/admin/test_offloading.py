"""The steps of an offloading over the REST: what was answered is stored, and survives the next change of the list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from managed_ledger.ledger_list import decode, encode
from managed_ledger.stored_list import log_path
from quire.wire.pulsar.names import TopicName
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room
from tests.unit.broker.rest import Rest, rest_of

PATH = "/admin/v2/persistent/public/default/orders/quireOffload"
FIRST, SECOND = str(UUID(int=1)), str(UUID(int=2))


async def ledgers(rest: Rest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await rest.get(PATH))["ledgers"]
    return found


async def stored(room: Room) -> list[bool]:
    node = await room.cluster.stores[0].get(log_path(TopicName.parse(TOPIC).managed_ledger_path))
    assert node is not None
    return [info.is_offloaded for info in decode(node.value).ledgers]


async def test_the_steps_are_stored_and_refused_to_another_job(room: Room, peer: Peer) -> None:
    await peer.producer()
    await peer.publish(*[b"m"] * 25)  # in ledgers of ten entries
    topic = await room.topic()
    await until(lambda: topic.ledger.state.name == "OPEN")
    async with rest_of(room, cluster=True) as rest:
        first, _ = await ledgers(rest)
        assert (first["entries"], first["uid"], first["complete"], first["driver"]) == (10, "", False, "")
        assert first["closedMs"] > 0
        body: dict[str, Any] = {"ledger": first["ledgerId"], "uid": FIRST}
        assert await rest.status("PUT", PATH, json={**body, "driver": "d"}) == 204
        assert await rest.status("PUT", PATH, json={**body, "driver": "d"}) == 204, "repeated"
        assert await stored(room) == [False] * 3
        reason = await rest.refused("PUT", PATH, 409, json={**body, "uid": SECOND, "driver": "d"})
        assert FIRST in reason
        await rest.refused("POST", PATH, 409, json={**body, "uid": SECOND})
        assert await rest.status("POST", PATH, json=body) == 204
        assert await rest.status("POST", PATH, json=body) == 204, "repeated"
        assert await stored(room) == [True, False, False]
        await rest.refused("PUT", PATH, 409, json={**body, "uid": SECOND, "instead": FIRST, "driver": "d"})
        current = topic.ledger.ledgers[-1].ledger_id
        await rest.refused("PUT", PATH, 409, json={"ledger": current, "uid": SECOND, "driver": "d"})
        await peer.publish(*[b"m"] * 10, first=25)  # a change of ledgers keeps it
        await until(lambda: len(topic.ledger.ledgers) == 4)
        assert await stored(room) == [True, False, False, False]
        [shown, *_] = await ledgers(rest)
        assert (shown["uid"], shown["complete"], shown["driver"]) == (FIRST, True, "d")
        await rest.refused("DELETE", f"{PATH}?ledger={first['ledgerId']}&uid={SECOND}", 409)
        assert await rest.status("DELETE", f"{PATH}?ledger={first['ledgerId']}&uid={FIRST}") == 204
        assert await stored(room) == [False] * 4


async def test_a_broker_that_has_lost_the_topic_answers_nothing_stale(room: Room, peer: Peer) -> None:
    """The pipeline removes files of ledgers that are not in the answer."""
    await peer.producer()
    await peer.publish(*[b"m"] * 25)
    topic = await room.topic()
    await until(lambda: topic.ledger.state.name == "OPEN")
    async with rest_of(room, cluster=True) as rest:
        assert len(await ledgers(rest)) == 2
        store, path = room.cluster.stores[0], log_path(TopicName.parse(TOPIC).managed_ledger_path)
        node = await store.get(path)
        assert node is not None
        others = decode(node.value)
        await store.put(path, encode(replace(others, opening=7)), node.version)
        assert await rest.status("GET", PATH) == 503


async def test_requests_that_cannot_be_understood_are_refused(room: Room, peer: Peer) -> None:
    await peer.producer()
    async with rest_of(room, cluster=True) as rest:
        for body in ({}, {"ledger": -1, "uid": FIRST, "driver": "d"}, {"ledger": 1, "uid": "x", "driver": "d"}):
            await rest.refused("PUT", PATH, 400, json=body)
        await rest.refused("POST", PATH, 400, json={"ledger": 1, "uid": FIRST.replace("-", "")})
        await rest.refused("DELETE", f"{PATH}?ledger=1", 400)
        await rest.refused("DELETE", f"{PATH}?uid={FIRST}", 400)
        assert await rest.status("GET", PATH.replace("orders", "none")) == 404
