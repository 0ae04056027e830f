"""Statistics of topics over the admin REST, compared with what official clients did."""

from __future__ import annotations

import time

import pulsar

from tests.support.admin_rest import Admin, publish
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000


def test_counters_backlogs_and_clients_of_a_topic(admin: Admin, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name="c", receiver_queue_size=3)
    client.subscribe(topic, "idle").close()
    began_ms = time.time_ns() // 1_000_000
    publish(client, topic, 4)
    producer = client.create_producer(topic, "p", batching_enabled=True, batching_max_publish_delay_ms=500)
    for number in range(5):
        producer.send_async(b"b%d" % number, None)
    producer.flush()
    for _ in range(2):
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
    consumer.receive(RECEIVE_MS)
    ended_ms = time.time_ns() // 1_000_000

    resource = "/stats?getPreciseBacklog=true&getEarliestTimeInBacklog=true"
    wait_until(lambda: admin.get(topic, resource)["subscriptions"]["s"]["msgBacklog"] == 7)  # acks leave in groups
    found = admin.get(topic, resource)
    assert found["msgInCounter"] == 9
    assert found["bytesInCounter"] == found["storageSize"] > 0
    assert [each["producerName"] for each in found["publishers"]] == ["p"]
    subscription = found["subscriptions"]["s"]
    assert (subscription["type"], subscription["isDurable"], subscription["msgBacklog"]) == ("Shared", True, 7)
    assert subscription["unackedMessages"] >= 1
    [held] = subscription["consumers"]
    assert (held["consumerName"], held["unackedMessages"]) == ("c", subscription["unackedMessages"])
    assert held["clientVersion"]
    idle = found["subscriptions"]["idle"]
    assert (idle["msgBacklog"], idle["type"], idle["consumers"]) == (9, "None", [])
    assert idle["backlogSize"] == found["backlogSize"] == found["storageSize"]
    assert 0 < subscription["backlogSize"] < idle["backlogSize"]
    assert began_ms <= idle["earliestMsgPublishTimeInBacklog"] <= subscription["earliestMsgPublishTimeInBacklog"]
    assert subscription["earliestMsgPublishTimeInBacklog"] <= ended_ms
    assert found["oldestBacklogMessageSubscriptionName"] == "idle"
    assert 0 <= found["oldestBacklogMessageAgeSeconds"] <= 60

    plain = admin.get(topic, "/stats?excludePublishers=true&excludeConsumers=true&subscriptionBacklogSize=false")
    assert plain["subscriptions"]["idle"]["msgBacklog"] == 5, "entries"
    assert plain["subscriptions"]["s"]["backlogSize"] == -1
    assert (plain["publishers"], plain["subscriptions"]["s"]["consumers"]) == ([], [])
    assert plain["oldestBacklogMessageAgeSeconds"] == -1


def test_partitions_are_added_up(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=3)
    client.subscribe(topic, "s").close()
    producer = client.create_producer(
        topic, batching_enabled=False, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(7):
        producer.send(b"m%d" % number)
    found = admin.get(topic, "/partitioned-stats")
    assert found["metadata"]["partitions"] == 3
    assert (found["msgInCounter"], found["subscriptions"]["s"]["msgBacklog"]) == (7, 7)
    parts = [found["partitions"][f"{topic}-partition-{index}"]["msgInCounter"] for index in range(3)]
    assert sum(parts) == 7
    assert len(found["publishers"]) == 3
    assert admin.get(topic, "/partitioned-stats?perPartition=false")["partitions"] == {}
    assert admin.ask("GET", topic, "/stats").status_code == 404
    assert admin.ask("GET", f"{topic}-partition-0", "/partitioned-stats").status_code == 404
    assert admin.get(f"{topic}-partition-0", "/stats")["msgInCounter"] == parts[0]


def test_access_and_deduplication_of_a_topic(admin: Admin, client: pulsar.Client, topic: str) -> None:
    shared = client.create_producer(topic, producer_name="shared")
    stats = admin.get(topic, "/stats")
    assert (stats.get("topicEpoch"), stats["waitingPublishers"], stats["deduplicationStatus"]) == (None, 0, "Disabled")
    assert [each["accessMode"] for each in stats["publishers"]] == ["Shared"]
    shared.close()
    alone = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    alone.send(b"1")
    stats = admin.get(topic, "/stats")
    assert [each["accessMode"] for each in stats["publishers"]] == ["Exclusive"]
    assert stats["topicEpoch"] == 0
    admin.do("POST", topic, "/deduplicationEnabled", json=True)  # which loads the topic again
    for _ in range(100):
        if admin.get(topic, "/stats")["deduplicationStatus"] == "Enabled":
            break
        alone.send(b"2")
    else:
        raise AssertionError("it never became enabled")
