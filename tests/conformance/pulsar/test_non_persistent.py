"""Non-persistent topics as official clients see them."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from typing import Any

import httpx2
import pulsar
import pytest
from pulsar import ConsumerType

from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000
_numbers = itertools.count()


@pytest.fixture
def news() -> str:
    return f"non-persistent://public/default/news{next(_numbers)}"


def stats(server: StandaloneProcess, topic: str, resource: str = "stats") -> dict[str, Any]:
    answer = httpx2.get(f"{server.web}/admin/v2/{topic.replace('://', '/')}/{resource}", timeout=20)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def wait_for_permits(server: StandaloneProcess, topic: str, count: int) -> None:
    """Wait until that many consumers have permits: what is sent before is dropped."""

    def ready() -> bool:
        found = [each for sub in stats(server, topic)["subscriptions"].values() for each in sub["consumers"]]
        return len([each for each in found if each["availablePermits"] > 0]) == count

    wait_until(ready, "consumers with permits")


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Failover])
def test_what_is_published_reaches_those_who_listen(
    server: StandaloneProcess, client: pulsar.Client, news: str, kind: ConsumerType
) -> None:
    one, other = (client.subscribe(news, name, consumer_type=kind) for name in "ab")
    wait_for_permits(server, news, 2)
    producer = client.create_producer(news)
    for number in range(50):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    for consumer in (one, other):
        for number in range(50):
            message = consumer.receive(RECEIVE_MS)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
    assert stats(server, news)["msgInCounter"] == 50
    late = client.subscribe(news, "late", initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(pulsar.Timeout):
        late.receive(500)


def test_shared_and_key_shared_consumers_share_and_keys_stay_together(
    server: StandaloneProcess, client: pulsar.Client, news: str
) -> None:
    got: dict[str, list[tuple[int, bytes]]] = {"shared": [], "keyed": []}
    lock = threading.Lock()

    def listener(name: str, number: int):
        def take(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            with lock:
                got[name].append((number, message.data()))
            consumer.acknowledge(message)

        return take

    consumers = [
        client.subscribe(news, name, consumer_type=kind, message_listener=listener(name, number))
        for name, kind in (("shared", ConsumerType.Shared), ("keyed", ConsumerType.KeyShared))
        for number in range(2)
    ]
    wait_for_permits(server, news, 4)
    producer = client.create_producer(news, batching_enabled=False)
    for number in range(200):
        producer.send(b"%d" % (number % 20), partition_key=f"k{number % 20}")
    wait_until(lambda: all(len(each) == 200 for each in got.values()), "all messages")
    assert len(Counter(number for number, _ in got["shared"])) == 2
    assert len(set(got["keyed"])) == 20, "each key has one consumer"
    for consumer in consumers:
        consumer.close()


def test_a_full_queue_loses_messages_and_the_rate_says_so(
    server: StandaloneProcess, client: pulsar.Client, news: str
) -> None:
    consumer = client.subscribe(news, "s", receiver_queue_size=5)
    wait_for_permits(server, news, 1)
    producer = client.create_producer(news, batching_enabled=False)
    for number in range(50):
        assert str(producer.send(b"%d" % number)).startswith("(0,0,")
    found = stats(server, news)["subscriptions"]["s"]
    assert (found["msgOutCounter"], found["msgDropRate"] > 0) == (5, True)
    assert [consumer.receive(RECEIVE_MS).data() for _ in range(5)] == [b"%d" % number for number in range(5)]


def test_a_partitioned_topic_is_made_used_and_deleted(
    server: StandaloneProcess, client: pulsar.Client, news: str
) -> None:
    base = f"{server.web}/admin/v2/{news.replace('://', '/')}"
    assert httpx2.put(f"{base}/partitions", json=3, timeout=20).status_code == 204
    consumer = client.subscribe(news, "s")
    wait_until(lambda: len(stats(server, news, "partitioned-stats")["partitions"]) == 3, "three partitions")
    for index in range(3):
        wait_for_permits(server, f"{news}-partition-{index}", 1)
    producer = client.create_producer(
        news, batching_enabled=False, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    sent = {b"%d" % number for number in range(12)}
    for payload in sent:
        producer.send(payload)
    assert {consumer.receive(RECEIVE_MS).data() for _ in sent} == sent
    found = stats(server, news, "partitioned-stats")
    assert all(each["msgInCounter"] > 0 for each in found["partitions"].values())
    producer.close()
    consumer.close()
    assert httpx2.delete(f"{base}/partitions", timeout=20).status_code == 204


def test_clients_go_on_when_their_topic_is_unloaded(
    server: StandaloneProcess, client: pulsar.Client, news: str
) -> None:
    consumer = client.subscribe(news, "s")
    producer = client.create_producer(news)
    unloaded = httpx2.put(f"{server.web}/admin/v2/{news.replace('://', '/')}/unload", timeout=20)
    assert unloaded.status_code == 204

    def arrives() -> bool:
        producer.send(b"after")
        try:
            return bool(consumer.receive(200).data() == b"after")
        except pulsar.Timeout:
            return False

    wait_until(arrives, "a message after the unload")


def test_a_pattern_finds_topics_of_either_kind(server: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    local = topic.rpartition("/")[2]
    for domain in ("persistent", "non-persistent"):
        client.subscribe(f"{domain}://public/default/{local}-{domain}", "first")
    consumer = client.subscribe(
        re.compile(f"{topic}-.*"), "s", regex_subscription_mode=pulsar.RegexSubscriptionMode.AllTopics
    )
    direct = f"non-persistent://public/default/{local}-non-persistent"
    wait_until(lambda: "s" in stats(server, direct)["subscriptions"], "a consumer")
    wait_for_permits(server, direct, 2)
    for domain in ("persistent", "non-persistent"):
        client.create_producer(f"{domain}://public/default/{local}-{domain}").send(domain.encode())
    assert {consumer.receive(RECEIVE_MS).data() for _ in range(2)} == {b"persistent", b"non-persistent"}
