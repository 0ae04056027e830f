"""Quotas, rates, first uses and deletions as official clients see them, set over the admin REST."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pulsar
import pytest

from tests.support.admin_rest import Admin
from tests.support.process import wait_until
from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess

RECEIVE_MS = 10_000
QUOTA = {"limitSize": 20_000, "limitTime": -1, "policy": "producer_exception"}
CHECK = "/admin/v2/brokers/backlog-quota-check"


@pytest.fixture
def admin(server: StandaloneProcess) -> Iterator[Admin]:
    made = Admin(server)
    with made.http:
        yield made


def backlog_of(client: pulsar.Client, topic: str, count: int) -> pulsar.Producer:
    """Return a producer that has published so many KB to a subscription that nothing consumes."""
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic, send_timeout_millis=5000)
    for _ in range(count):
        producer.send(b"x" * 1000)
    return producer


def test_above_its_quota_a_topic_refuses_producers_until_its_backlog_is_consumed(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    producer = backlog_of(client, topic, 30)
    admin.do("POST", topic, "/backlogQuota", json=QUOTA)
    assert admin.http.get(CHECK).status_code == 204
    refuses(pulsar.PulsarException, lambda: producer.send(b"more"))
    refuses(pulsar.ProducerBlockedQuotaExceededException, lambda: client.create_producer(topic))
    admin.do("POST", topic, "/subscription/s/skip_all")
    client.create_producer(topic).send(b"again")


def test_producers_that_are_to_wait_keep_what_they_send(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic, send_timeout_millis=30_000)
    for _ in range(30):
        producer.send(b"x" * 1000)
    admin.do("POST", topic, "/backlogQuota", json={**QUOTA, "policy": "producer_request_hold"})
    assert admin.http.get(CHECK).status_code == 204
    outcomes: list[pulsar.Result] = []
    producer.send_async(b"held", lambda result, _: outcomes.append(result))
    wait_until(lambda: not admin.get(topic, "/stats")["publishers"], "the producer is cut off")
    assert outcomes == []
    admin.do("POST", topic, "/subscription/s/skip_all")
    producer.flush()
    assert outcomes == [pulsar.Result.Ok]
    consumer = client.subscribe(topic, "s")
    assert bytes(consumer.receive(RECEIVE_MS).data()) == b"held"


def test_the_oldest_messages_are_evicted(admin: Admin, client: pulsar.Client, topic: str) -> None:
    producer = backlog_of(client, topic, 30)
    admin.do("POST", topic, "/backlogQuota", json={**QUOTA, "policy": "consumer_backlog_eviction"})
    assert admin.http.get(CHECK).status_code == 204
    producer.send(b"last")
    consumer = client.subscribe(topic, "s")
    found = [bytes(consumer.receive(RECEIVE_MS).data())]
    while found[-1] != b"last":
        found.append(bytes(consumer.receive(RECEIVE_MS).data()))
    assert 15 <= len(found) <= 19


def test_messages_are_delivered_at_their_rate(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"m%d" % number)
    rate = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    admin.do("POST", topic, "/dispatchRate", json=rate)
    began = time.monotonic()
    consumer = client.subscribe(topic, "s")
    for number in range(40):
        assert bytes(consumer.receive(RECEIVE_MS).data()) == b"m%d" % number
    assert time.monotonic() - began >= 2.9


def test_messages_are_published_at_their_rate(admin: Admin, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    rate = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}
    admin.do("POST", topic, "/publishRate", json=rate)
    producer.send(b"first")
    began = time.monotonic()
    for _ in range(30):
        producer.send(b"x")
    assert time.monotonic() - began >= 1.8


def test_a_subscription_is_not_made_where_that_is_not_allowed(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic)
    admin.do("POST", topic, "/autoSubscriptionCreation", json={"allowAutoSubscriptionCreation": False})
    with pytest.raises(pulsar.PulsarException):  # this client tries again until its time is over
        client.subscribe(topic, "s")
    assert admin.get(topic, "/subscriptions") == []
    admin.do("PUT", topic, "/subscription/s")
    client.subscribe(topic, "s")


def test_a_deleted_topic_stays_deleted_while_its_clients_reconnect(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    producer, consumer = client.create_producer(topic, send_timeout_millis=3000), client.subscribe(topic, "s")
    admin.do("DELETE", topic, "?force=true")
    refuses(pulsar.PulsarException, lambda: producer.send(b"y"))
    refuses(pulsar.PulsarException, lambda: consumer.receive(3000))
    assert admin.ask("GET", topic, "/stats").status_code == 404
    client.create_producer(topic).send(b"anew")
