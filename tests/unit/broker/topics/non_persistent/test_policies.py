"""Policies that non-persistent topics have themselves, set over REST and obeyed."""

from __future__ import annotations

from broker.ownership.values import encode_json
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.support.waiting import until
from tests.unit.broker.peers import Room
from tests.unit.broker.rest import rest_of

BASE = "/admin/v2/non-persistent/public/default"
FULL = "non-persistent://public/default/t"
NAME = TopicName.parse(FULL)
PERSISTENT = "/admin/v2/persistent/public/default"


async def test_limits_of_a_topic_are_set_shown_and_obeyed(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(FULL, 1, producer_name="p")
    await peer.subscribe(FULL, "s", 1)
    async with rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{PERSISTENT}/t") == 204  # of the same name
        limits = ("maxProducers", "maxConsumers", "maxSubscriptionsPerTopic", "maxConsumersPerSubscription")
        for resource in limits:
            assert await rest.status("GET", f"{BASE}/t/{resource}") == 200, resource
            assert await rest.status("POST", f"{BASE}/t/{resource}", json=1) == 204, resource
            assert await rest.get(f"{BASE}/t/{resource}?applied=true") == 1
            await rest.refused("POST", f"{BASE}/t/{resource}", 412, json=-1)
        assert await rest.get(f"{PERSISTENT}/t/maxProducers?applied=true") == 0
        assert await peer.refused_producer(FULL, 2) == pb.ProducerBusy
        assert await peer.refused_consumer(FULL, "other", 2) == pb.NotAllowedError
        await peer.producer(FULL.replace("non-", ""), 3)
        await peer.producer(FULL.replace("non-", ""), 4)
        assert await rest.status("DELETE", f"{BASE}/t/maxProducers") == 204
        await peer.producer(FULL, 2)
        assert await rest.status("DELETE", f"{BASE}/t/policies") == 204
        assert await rest.status("GET", f"{BASE}/t/maxConsumers") == 200
        await peer.subscribe(FULL, "other", 2)
        for path in ("none/maxProducers", "t/retention", "t/dispatchRate"):
            assert await rest.status("GET", f"{BASE}/{path}") == (404 if "none" in path else 405), path


async def test_the_rate_of_publishing_of_a_topic_holds_its_producers(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(FULL)
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    async with rest_of(room, cluster=True) as rest:
        assert await rest.status("POST", f"{BASE}/t/publishRate", json=rate) == 204
        topic = room.broker.direct.find(NAME)
        assert topic is not None
        await until(lambda: topic.rates is not None and topic.rates.publish is not None)
        assert await rest.get(f"{BASE}/t/publishRate") == rate
        assert await rest.status("DELETE", f"{BASE}/t/publishRate") == 204
        await until(lambda: topic.rates is not None and topic.rates.publish is None)


async def test_topics_that_are_not_stored_do_not_count_but_must_not_be_too_many_partitions(room: Room) -> None:
    await room.cluster.stores[0].put(
        "/admin/policies/public/default", encode_json({"max_topics_per_namespace": 2}), ANY_VERSION
    )
    peer = await room.connect()
    async with rest_of(room, cluster=True) as rest:
        for number in range(4):
            await peer.producer(f"{FULL}{number}", number)
        reason = await rest.refused("PUT", f"{BASE}/p/partitions", 412, json=3)
        assert reason.startswith("Exceed maximum number of topics in namespace")
        assert await rest.status("PUT", f"{BASE}/p/partitions", json=2) == 204
        assert await rest.status("PUT", f"{PERSISTENT}/p/partitions", json=2) == 204
        reason = await rest.refused("PUT", f"{PERSISTENT}/q/partitions", 412, json=1)
        assert reason.startswith("Exceed maximum number of topics in namespace")


async def test_topics_are_listed_by_bundle(room: Room) -> None:
    async with rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/t") == 204
        every = await rest.get("/admin/v2/namespaces/public/default/bundles")
        ranges = ["_".join(pair) for pair in zip(every["boundaries"], every["boundaries"][1:], strict=False)]
        found = [await rest.get(f"{BASE}/{bundle}") for bundle in ranges]
        assert sorted(found) == [*[[]] * (len(ranges) - 1), [FULL]]
        assert [await rest.get(f"{BASE}?bundle={bundle}") for bundle in ranges] == found
        assert await rest.status("GET", f"{BASE}/0x0_0x1") == 404
