"""Tenants, namespaces and policies over the admin REST, and official clients that see the results at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx2
import pulsar
import pytest

from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000
_numbers = itertools.count()


@pytest.fixture
def http(server: StandaloneProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{server.web}/admin/v2", timeout=20) as made:
        yield made


def do(http: httpx2.Client, method: str, path: str, **options: Any) -> None:
    response = http.request(method, path, **options)
    assert (response.status_code, response.content) == (204, b""), response.text


def test_a_tenant_and_a_namespace_are_used_as_soon_as_they_are_made(http: httpx2.Client, client: pulsar.Client) -> None:
    tenant = f"tenant{next(_numbers)}"
    topic = f"persistent://{tenant}/space/t"
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    cluster = http.get("/clusters").json()[0]
    do(http, "PUT", f"/tenants/{tenant}", json={"allowedClusters": [cluster], "adminRoles": []})
    do(http, "PUT", f"/namespaces/{tenant}/space", json={"bundles": {"numBundles": 2}})
    assert http.get(f"/namespaces/{tenant}").json() == [f"{tenant}/space"]
    producer = client.create_producer(topic)
    producer.send(b"m")
    producer.close()
    assert http.delete(f"/namespaces/{tenant}/space").status_code == 409
    do(http, "DELETE", f"/persistent/{tenant}/space/t")
    do(http, "DELETE", f"/namespaces/{tenant}/space")
    do(http, "DELETE", f"/tenants/{tenant}")
    assert tenant not in http.get("/tenants").json()


def received_until(consumer: pulsar.Consumer, last: bytes) -> set[bytes]:
    """Return the messages that are received and acknowledged before `last`.

    A message whose acknowledgement had not left the client when its topic was unloaded is delivered again.
    """
    earlier: set[bytes] = set()
    while True:
        message = consumer.receive(RECEIVE_MS)
        consumer.acknowledge_cumulative(message)
        if message.data() == last:
            return earlier
        earlier.add(message.data())


def test_producer_and_consumer_go_on_after_their_topic_was_unloaded(
    http: httpx2.Client, client: pulsar.Client, topic: str
) -> None:
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    path = f"/persistent/{topic.removeprefix('persistent://')}/unload"
    for number in range(3):
        producer.send(b"m%d" % number)
        assert received_until(consumer, b"m%d" % number) <= {b"m%d" % earlier for earlier in range(number)}
        do(http, "PUT", path)
    assert http.put("/persistent/public/default/nobody-made-it/unload").status_code == 404


def test_retention_keeps_what_was_consumed_and_takes_it_away_again(
    http: httpx2.Client, client: pulsar.Client, topic: str
) -> None:
    path = f"/persistent/{topic.removeprefix('persistent://')}"

    def ledgers() -> int:
        return len(http.get(f"{path}/internalStats").json()["ledgers"])

    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    do(http, "POST", f"{path}/retention", json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    assert http.get(f"{path}/retention?applied=true").json()["retentionSizeInMB"] == -1
    for number in range(2):
        producer.send(b"m%d" % number)
        consumer.acknowledge_cumulative(consumer.receive(RECEIVE_MS))
        do(http, "PUT", f"{path}/unload")  # which closes the ledger
    assert ledgers() >= 2
    do(http, "DELETE", f"{path}/retention")
    assert http.get(f"{path}/retention").status_code == 200
    producer.send(b"last")
    received_until(consumer, b"last")
    wait_until(lambda: ledgers() == 1, "the closed ledgers are consumed, and go")
    assert http.get(f"{path}/retention?applied=true").json() == {
        "retentionTimeInMinutes": 0,
        "retentionSizeInMB": 0,
    }


def test_more_copies_than_there_are_bookies_are_refused_and_the_topic_goes_on(
    http: httpx2.Client, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"m0")
    path = f"/persistent/{topic.removeprefix('persistent://')}"
    three = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2}
    for whose in (path, "/namespaces/public/default"):
        refused = http.post(f"{whose}/persistence", json=three)
        assert refused.status_code == 412
        assert "bookies" in refused.json()["reason"]
    do(http, "PUT", f"{path}/unload")  # which starts another ledger
    producer.send(b"m1")
