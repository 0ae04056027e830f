"""broker.admin.stats.stored: a topic as it is stored, over a broker in memory."""

from __future__ import annotations

from tests.support.pulsar_frames import SUB, C
from tests.unit.broker.peers import TOPIC, Room
from tests.unit.broker.rest import rest_of

TOPICS = "/admin/v2/persistent/public/default"


async def test_ledgers_and_cursors_are_shown_as_they_are_stored(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.subscribe(name="s/1", subType=SUB.Shared)
    places = await peer.publish(*[b"m"] * 25)
    topic = await room.topic()
    first, second, third = [each.ledger_id for each in topic.ledger.ledgers]
    async with rest_of(room) as rest:
        await rest.refused("GET", f"{TOPICS}/none/internal-info", 404)
        shown = await rest.get(f"{TOPICS}/orders/internal-info")
        assert [each["ledgerId"] for each in shown["ledgers"]] == [first, second, third]
        assert [each.get("entries") for each in shown["ledgers"]] == [10, 10, None]
        assert all(each["timestamp"] > 0 for each in shown["ledgers"][:2])
        assert not any(each["isOffloaded"] for each in shown["ledgers"])
        assert list(shown["cursors"]) == ["s/1"]
        assert "terminatedPosition" not in shown
        assert await rest.status("POST", f"{TOPICS}/orders/terminate") == 200
        await peer.expect(C.CLOSE_PRODUCER)
        peer.flow(25)
        for _ in places:
            await peer.message()
        await peer.answered_ack(places[0], places[2])
        await topic.close()
        stored = await rest.get(f"{TOPICS}/orders/internal-info")
        assert stored["terminatedPosition"] == {"ledgerId": third, "entryId": 4}
        assert stored["version"] > shown["version"]
        cursor = stored["cursors"]["s/1"]
        assert (cursor["cursorsLedgerId"], cursor["markDelete"]) == (-1, {"ledgerId": first, "entryId": 0})
        second_range = {"from": {"ledgerId": first, "entryId": 1}, "to": {"ledgerId": first, "entryId": 2}}
        assert cursor["individualDeletedMessages"] == [second_range]


async def test_partitions_are_shown_one_by_one(room: Room) -> None:
    async with rest_of(room) as rest:
        assert await rest.status("PUT", f"{TOPICS}/p/partitions", json=2) == 204
        shown = await rest.get(f"{TOPICS}/p/internal-info")
        assert list(shown["partitions"]) == [f"persistent://public/default/p-partition-{each}" for each in (0, 1)]
        assert shown["partitions"]["persistent://public/default/p-partition-0"]["ledgers"] == []
        assert await rest.status("GET", f"{TOPICS}/p/backlog") == 405


async def test_the_backlog_is_counted_by_cursor(room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.subscribe(name="a", consumer_id=1)
    await peer.publish(*[b"m"] * 15)
    await peer.subscribe(name="b", consumer_id=2, initialPosition=SUB.Latest)
    await peer.publish(*[b"m"] * 3, first=15)
    async with rest_of(room) as rest:
        await rest.refused("GET", f"{TOPICS}/none/backlog", 404)
        shown = await rest.get(f"{TOPICS}/orders/backlog")
    assert (shown["totalMessages"], shown["messageBacklog"], shown["brokerName"]) == (18, 21, "test:6650")
    assert {name: each["cursorBacklog"] for name, each in shown["cursorDetails"].items()} == {"a": 18, "b": 3}
    assert shown["topicName"] == "public/default/persistent/orders"
    assert [each["entries"] for each in shown["dataLedgerDetails"]] == [10, 0]
    stats = await room.broker.administration.internal_stats((await room.topic()).name)
    assert shown["storageSize"] == stats.total_size > 0
    assert shown["statGeneratedAt"] > 0


async def test_no_subscription_is_replicated(room: Room) -> None:
    peer = await room.connect()
    await peer.subscribe()
    async with rest_of(room) as rest:
        status = f"{TOPICS}/orders/subscription/s/replicatedSubscriptionStatus"
        assert await rest.get(status) == {TOPIC: False}
        assert await rest.status("POST", status, json=False) == 204
        assert "no replication" in await rest.refused("POST", status, 405, json=True)
        assert await rest.status("POST", status, json=1) == 400
        assert await rest.status("GET", status.replace("/s/", "/none/")) == 404
