"""The admin REST of non-persistent topics over a broker in memory."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin.non_persistent import NamesElsewhere
from broker.admin.other_brokers import OtherBrokers
from broker.config import PARTITIONED
from broker.errors import ServiceNotReadyError
from broker.ownership.brokers import BROKERS
from broker.ownership.values import BrokerReport, LocalBroker, encode_report
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NON_PERSISTENT, NamespaceName, TopicName
from tests.support.pulsar_frames import C
from tests.unit.broker.peers import Peer, Room, in_broker
from tests.unit.broker.rest import rest_of

BASE = "/admin/v2/non-persistent/public/default"
SPACE = NamespaceName("public", "default")
FULL = "non-persistent://public/default"


async def partition_count(peer: Peer, topic: str, *, create: bool = True) -> int:
    """Return the number of partitions, or the error as a number below 0."""
    body = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=5, metadata_auto_creation_enabled=create)
    peer.send(C(type=C.PARTITIONED_METADATA, partitionMetadata=body))
    found = (await peer.expect(C.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse
    is_found = found.response == pb.CommandPartitionedTopicMetadataResponse.Success
    return found.partitions if is_found else -int(found.error)


async def test_a_topic_is_made_listed_shown_unloaded_and_deleted(room: Room) -> None:
    async with rest_of(room) as rest:
        assert await rest.status("PUT", f"{BASE}/t") == 204
        assert await rest.status("PUT", f"{BASE}/t") == 409
        assert await rest.get(BASE) == [f"{FULL}/t"]
        assert await rest.get("/admin/v2/persistent/public/default") == []
        topics = "/admin/v2/namespaces/public/default/topics?mode="
        assert await rest.get(f"{topics}NON_PERSISTENT") == await rest.get(f"{topics}ALL") == [f"{FULL}/t"]
        assert await rest.get(f"{topics}PERSISTENT") == []
        peer = await room.connect()
        await peer.subscribe(f"{FULL}/t")
        await peer.producer(f"{FULL}/t", producer_name="p")
        await peer.publish(b"1", b"2")
        found = await rest.get(f"{BASE}/t/stats")
        assert (found["msgInCounter"], found["msgDropRate"], found["publishers"][0]["msgDropRate"]) == (2, 0.0, 0.0)
        assert found["subscriptions"]["s"]["msgDropRate"] > 0
        assert (found["subscriptions"]["s"]["type"], found["subscriptions"]["s"]["msgOutCounter"]) == ("Exclusive", 0)
        assert await rest.get(f"{BASE}/t/internalStats") == {"entriesAddedCounter": 2, "cursors": {"s": {}}}
        assert await rest.get(f"{BASE}/t/subscriptions") == ["s"]
        assert await rest.status("DELETE", f"{BASE}/t") == 412
        assert await rest.status("PUT", f"{BASE}/t/unload") == 204
        assert {(await peer.receive())[0].type for _ in range(2)} == {C.CLOSE_CONSUMER, C.CLOSE_PRODUCER}
        await peer.subscribe(f"{FULL}/t")
        assert await rest.status("DELETE", f"{BASE}/t?force=true") == 204
        await peer.expect(C.CLOSE_CONSUMER)
        for method, path in (("GET", "t/stats"), ("DELETE", "t"), ("PUT", "t/unload"), ("GET", "t/subscriptions")):
            assert await rest.status(method, f"{BASE}/{path}") == 404, path


async def test_subscriptions_are_deleted_and_made_by_clients_only(room: Room) -> None:
    async with rest_of(room) as rest:
        peer = await room.connect()
        await peer.subscribe(f"{FULL}/t")
        place = f"{BASE}/t/subscription"
        assert await rest.status("PUT", f"{place}/other") == 400
        assert await rest.status("DELETE", f"{place}/other") == 404
        assert await rest.status("DELETE", f"{place}/s") == 412
        assert await rest.status("DELETE", f"{place}/s?force=true") == 204
        await peer.expect(C.CLOSE_CONSUMER)
        assert await rest.get(f"{BASE}/t/subscriptions") == []


async def test_a_partitioned_topic_is_made_used_grown_and_deleted_without_a_log(room: Room) -> None:
    async with rest_of(room) as rest:
        assert await rest.status("PUT", f"{BASE}/p/partitions", json=2) == 204
        assert await rest.status("PUT", f"{BASE}/p/partitions", json=2) == 409
        assert await rest.get(f"{BASE}/partitioned") == [f"{FULL}/p"]
        assert await rest.get("/admin/v2/persistent/public/default/partitioned") == []
        peer = await room.connect()
        for index in range(2):
            await peer.subscribe(f"{FULL}/p-partition-{index}", consumer_id=index)
        peer.ask_subscribe(f"{FULL}/p-partition-2", consumer_id=2)
        assert (await peer.error())[0] == pb.NotAllowedError
        peer.ask_producer(f"{FULL}/p")
        assert (await peer.error())[0] == pb.NotAllowedError
        await peer.producer(f"{FULL}/p-partition-1")
        await peer.publish(b"1")
        found = await rest.get(f"{BASE}/p/partitioned-stats")
        assert (found["msgInCounter"], found["metadata"]["partitions"], len(found["partitions"])) == (1, 2, 2)
        assert await rest.get(f"{BASE}/p/subscriptions") == ["s"]
        assert await rest.status("POST", f"{BASE}/p/partitions", json=3) == 204
        assert (await rest.get(f"{BASE}/p/partitions"))["partitions"] == 3
        assert await rest.status("DELETE", f"{BASE}/p/partitions") == 412
        assert await rest.status("DELETE", f"{BASE}/p/partitions?force=true") == 204
        assert await rest.get(f"{BASE}/partitioned") == []
        assert await rest.get(BASE) == []
    assert await room.cluster.stores[0].get("/managed-ledgers/public/default/non-persistent") is None


class Owner:
    async def lookup(self, name: TopicName, *, authoritative: bool) -> Any:
        raise AssertionError("nothing is looked up")


async def test_names_come_from_all_brokers_and_never_in_part(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    store = room.cluster.stores[0]
    for number in (1, 2):
        broker = LocalBroker(id=f"b{number}:8080", broker_url="pulsar://b:6650", web_url=f"http://b{number}:8080")
        value = encode_report(BrokerReport(broker=broker, bundles={}), version="1", started_ms=0, now_ms=0)
        await store.create(f"{BROKERS}/b{number}:8080", value, make_parents=True)
    asked: list[str] = []

    async def call(web_url: str, method: str, path: str, **options: Any) -> list[str]:
        asked.append(f"{method} {web_url}{path}")
        if len(asked) > 1:
            raise ServiceNotReadyError("no answer")
        return [f"{FULL}/there"]

    others = OtherBrokers(Owner(), room.broker.context.world.network)
    monkeypatch.setattr(others, "call", call)
    room.broker.direct.names_elsewhere = NamesElsewhere(store, others, "b1:8080").names
    await room.broker.direct.get(TopicName.parse(f"{FULL}/here"))
    namespace = NamespaceName("public", "default")
    names = [each.full for each in await room.broker.direct.names_everywhere(namespace)]
    assert names == [f"{FULL}/here", f"{FULL}/there"]
    assert asked == [f"GET http://b2:8080{BASE}?quireHere=true"]
    async with rest_of(room) as rest:
        assert await rest.get(f"{BASE}?quireHere=true") == [f"{FULL}/here"]
        assert await rest.status("GET", BASE) == 503


async def test_the_count_of_partitions_is_told_and_a_topic_that_no_broker_has_is_not_found(room: Room) -> None:
    peer = await room.connect()
    direct = room.broker.direct
    await direct.create_partitioned(TopicName.parse(f"{FULL}/p"), 2)
    await direct.get(TopicName.parse(f"{FULL}/here"))

    async def there(namespace: NamespaceName) -> list[TopicName]:
        return [TopicName.parse(f"{FULL}/there")]

    direct.names_elsewhere = there
    for name, create, found in (
        ("p", False, 2),
        ("p-partition-1", False, 0),
        ("p-partition-2", False, -pb.TopicNotFound),
        ("here", False, 0),
        ("there", False, 0),
        ("missing", False, -pb.TopicNotFound),
        ("missing", True, 0),
    ):
        assert await partition_count(peer, f"{FULL}/{name}", create=create) == found, name


async def test_topics_are_partitioned_where_the_configuration_makes_them_so() -> None:
    async with in_broker(auto_topic_type=PARTITIONED, partitions_default=3) as room:
        peer = await room.connect()
        assert await partition_count(peer, f"{FULL}/t") == 3
        assert [each.full for each in await room.broker.topics.partitioned.names(SPACE, NON_PERSISTENT)] == [
            f"{FULL}/t"
        ]


async def test_clients_are_told_the_topics_of_both_kinds(room: Room) -> None:
    peer = await room.connect()
    await peer.producer(f"{FULL}/direct")
    await peer.producer("persistent://public/default/stored", producer_id=2)
    mode = pb.CommandGetTopicsOfNamespace
    for asked, names in (
        (mode.PERSISTENT, ["persistent://public/default/stored"]),
        (mode.NON_PERSISTENT, [f"{FULL}/direct"]),
        (mode.ALL, ["persistent://public/default/stored", f"{FULL}/direct"]),
    ):
        body = mode(request_id=6, namespace="public/default", mode=asked)
        peer.send(C(type=C.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=body))
        found = (await peer.expect(C.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse
        assert list(found.topics) == names
