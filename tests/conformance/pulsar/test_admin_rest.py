"""The admin REST and the binary protocol of one server: each sees the changes made through the other.

The requests are those of the official clients' own suites and of tools: bare integers, message ids, escaped names.
"""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from urllib.parse import quote

import pulsar
import pytest
from pulsar import InitialPosition, MessageId

from tests.support.admin_rest import Admin, as_json, publish, wait_for_the_next_millisecond
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


def first_of(client: pulsar.Client, topic: str, subscription: str) -> bytes:
    """Return the first delivery of the subscription."""
    consumer = client.subscribe(topic, subscription)
    try:
        return bytes(consumer.receive(RECEIVE_MS).data())
    finally:
        consumer.close()


def http_put(url: str, data: str) -> None:
    """Make a PUT like the official Python client's suite, which accepts the status 409."""
    request = urllib.request.Request(url, data.encode("utf-8"), method="PUT")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20):
            pass
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise


# Partitions


def test_partitions_are_made_as_the_official_suites_make_them(
    server: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    url = f"{server.web}/admin/v2/persistent/public/default/{topic.rpartition('/')[2]}/partitions"
    http_put(url, "3")
    http_put(url, "3")
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{index}" for index in range(3)]


def test_a_partitioned_topic_is_made_once_and_seen_on_both_sides(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    admin.do("PUT", topic, "/partitions", json=4)
    again = admin.ask("PUT", topic, "/partitions", json=4)
    assert (again.status_code, list(again.json())) == (409, ["reason"])
    assert admin.get(topic, "/partitions")["partitions"] == 4
    assert len(client.get_topic_partitions(topic)) == 4
    assert topic in admin.http.get("/admin/v2/persistent/public/default/partitioned").json()
    names = admin.http.get("/admin/v2/persistent/public/default").json()
    assert {name for name in names if name.startswith(topic + "-")} == set(client.get_topic_partitions(topic))
    assert admin.http.get("/admin/v2/namespaces/public/default/topics?mode=ALL").json() == names
    assert topic not in names


def test_growth_is_seen_by_a_producer_and_missed_by_no_subscription(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    admin.do("PUT", topic, "/partitions", json=2)
    client.subscribe(topic, "s").close()
    assert admin.ask("POST", topic, "/partitions", json=1).status_code == 422
    admin.do("POST", topic, "/partitions", json=5)
    assert len(client.get_topic_partitions(topic)) == 5
    producer = client.create_producer(
        topic,
        batching_enabled=False,
        message_routing_mode=pulsar.PartitionsRoutingMode.CustomPartition,
        message_router=lambda message, partitions: int(message.partition_key()) % partitions,
    )
    for partition in range(5):
        producer.send(b"to %d" % partition, partition_key=str(partition))
    producer.close()
    consumer = client.subscribe(topic, "s")
    received = {bytes(consumer.receive(RECEIVE_MS).data()) for _ in range(5)}
    consumer.close()
    assert received == {b"to %d" % partition for partition in range(5)}


def test_only_a_partitioned_topic_grows(admin: Admin, client: pulsar.Client, topic: str) -> None:
    publish(client, topic, 1)
    assert admin.ask("POST", topic, "/partitions", json=5).status_code == 409
    assert admin.ask("PUT", topic, "/partitions", json=5).status_code == 409
    assert admin.get(topic, "/partitions")["partitions"] == 0


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_partitions_that_cannot_be_is_not_acceptable(admin: Admin, topic: str, count: int) -> None:
    assert admin.ask("PUT", topic, "/partitions", json=count).status_code == 406


def test_a_partitioned_topic_in_use_is_deleted_by_force_only(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=2)
    with_consumer = client.subscribe(topic, "s")
    assert admin.ask("DELETE", topic, "/partitions").status_code == 412
    assert admin.get(topic, "/partitions")["partitions"] == 2
    with_consumer.close()
    assert admin.ask("DELETE", topic).status_code == 409, "it is a partitioned topic"
    admin.do("DELETE", topic, "/partitions?force=true")
    assert admin.ask("GET", topic, "/partitions").status_code == 404
    assert admin.ask("DELETE", topic, "/partitions").status_code == 404


# Subscriptions


def test_a_subscription_made_at_a_position_delivers_from_there(admin: Admin, client: pulsar.Client, topic: str) -> None:
    ids = publish(client, topic, 5)
    admin.do("PUT", topic, "/subscription/earliest", json=EARLIEST)
    admin.do("PUT", topic, "/subscription/third", json=as_json(ids[2]))
    admin.do("PUT", topic, "/subscription/fourth", json={**as_json(ids[2]), "isExcluded": True})
    admin.do("PUT", topic, "/subscription/latest")
    publish(client, topic, 1)
    found = {name: first_of(client, topic, name) for name in ("earliest", "third", "fourth", "latest")}
    assert found == {"earliest": b"m0", "third": b"m2", "fourth": b"m3", "latest": b"m0"}


def test_a_subscription_is_made_once_and_listed_with_those_of_consumers(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "of a consumer").close()
    admin.do("PUT", topic, "/subscription/of%20an%20operator", json=EARLIEST)
    assert admin.ask("PUT", topic, "/subscription/of%20an%20operator", json=EARLIEST).status_code == 409
    assert admin.get(topic, "/subscriptions") == ["of a consumer", "of an operator"]


def test_a_subscription_of_a_partitioned_topic_is_on_every_partition(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    admin.do("PUT", topic, "/partitions", json=3)
    admin.do("PUT", topic, "/subscription/s", json="earliest")
    for partition in client.get_topic_partitions(topic):
        assert admin.get(partition, "/subscriptions") == ["s"]
    admin.do("DELETE", topic, "/subscription/s")
    assert admin.get(topic, "/subscriptions") == []


def test_a_subscription_in_use_is_deleted_by_force_only(admin: Admin, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    assert admin.ask("DELETE", topic, "/subscription/s").status_code == 412
    consumer.close()
    admin.do("DELETE", topic, "/subscription/s")
    assert admin.ask("DELETE", topic, "/subscription/s").status_code == 404
    assert admin.get(topic, "/subscriptions") == []


# Topics


def test_a_topic_is_made_and_deleted_with_what_was_in_it(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic)
    assert admin.ask("PUT", topic).status_code == 409
    producer = client.create_producer(topic)
    producer.send(b"old")
    assert admin.ask("DELETE", topic).status_code == 412
    producer.close()
    admin.do("DELETE", topic)
    assert admin.ask("GET", topic, "/internalStats").status_code == 404
    assert admin.ask("DELETE", topic).status_code == 404
    reader = client.create_reader(topic, MessageId.earliest)
    assert not reader.has_message_available()
    reader.close()


def test_internal_stats_are_what_the_producer_was_told(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "behind").close()
    ids = publish(client, topic, 7)
    consumer = client.subscribe(topic, "ahead", initial_position=InitialPosition.Earliest)
    for _ in range(3):
        message = consumer.receive(RECEIVE_MS)
    consumer.acknowledge_cumulative(message)
    consumer.close()
    last, third = ids[-1], ids[2]
    wait_until(lambda: "ahead" in admin.get(topic, "/internalStats")["cursors"])
    mark_delete = f"{third.ledger_id()}:{third.entry_id()}"
    wait_until(lambda: admin.get(topic, "/internalStats")["cursors"]["ahead"]["markDeletePosition"] == mark_delete)
    stats = admin.get(topic, "/internalStats?metadata=true")
    assert stats["lastConfirmedEntry"] == f"{last.ledger_id()}:{last.entry_id()}"
    # As the original has it, the open ledger counts 0 in the list: its entries and bytes stand beside it.
    closed = stats["ledgers"][:-1]
    assert stats["numberOfEntries"] == sum(ledger["entries"] for ledger in closed) + stats["currentLedgerEntries"] == 7
    assert stats["totalSize"] == sum(ledger["size"] for ledger in closed) + stats["currentLedgerSize"] > 0
    assert stats["ledgers"][-1]["ledgerId"] == last.ledger_id()
    assert stats["ledgers"][-1]["metadata"]
    assert set(stats["cursors"]) == {"ahead", "behind"}
    assert admin.get(topic, "/lastMessageId") == as_json(last)


def test_internal_stats_of_partitions_come_together(admin: Admin, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=2)
    assert admin.ask("GET", topic, "/internalStats").status_code == 405
    stats = admin.get(topic, "/partitioned-internalStats")
    assert stats["metadata"]["partitions"] == 2
    assert set(stats["partitions"]) == {f"{topic}-partition-0", f"{topic}-partition-1"}
    assert all(each["state"] for each in stats["partitions"].values())


def test_a_message_is_found_by_its_time_and_read_from_there(admin: Admin, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(3):
        producer.send(b"m%d" % number)
        wait_for_the_next_millisecond()
    producer.close()
    reader = client.create_reader(topic, MessageId.earliest)
    times = [reader.read_next(RECEIVE_MS).publish_timestamp() for _ in range(3)]
    reader.close()
    assert len(set(times)) == 3
    found = admin.get(topic, f"/messageid/{times[1]}")
    admin.do("PUT", topic, "/subscription/s", json=found)
    assert first_of(client, topic, "s") == b"m1"
    beyond = admin.get(topic, f"/messageid/{times[2] + 1}")
    admin.do("PUT", topic, "/subscription/end", json=beyond)
    publish(client, topic, 1)
    assert first_of(client, topic, "end") == b"m0"


# Lookup over HTTP


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_client_that_looks_up_over_http_publishes_and_receives(
    server: StandaloneProcess, admin: Admin, topic: str, partitions: int
) -> None:
    if partitions:
        admin.do("PUT", topic, "/partitions", json=partitions)
    client = pulsar.Client(
        server.web, operation_timeout_seconds=10, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    try:
        assert len(client.get_topic_partitions(topic)) == max(partitions, 1)
        consumer = client.subscribe(topic, "s")
        publish(client, topic, 1)
        assert consumer.receive(RECEIVE_MS).data() == b"m0"
    finally:
        client.close()


def test_a_lookup_tells_where_the_server_is(server: StandaloneProcess, admin: Admin) -> None:
    found = admin.http.get("/lookup/v2/topic/persistent/public/default/any?authoritative=true").json()
    assert (found["brokerUrl"], found["httpUrl"]) == (server.url, server.web)
    assert admin.http.get("/lookup/v2/topic/persistent/no/such/topic").status_code == 404


# What is asked badly, or by nobody any more


@pytest.mark.parametrize("name", ["a/b", "50% off", "a+b", "größe", "x&y=?"])
def test_a_name_that_needs_escaping_is_the_same_topic_on_both_sides(
    server: StandaloneProcess, admin: Admin, topic: str, name: str
) -> None:
    full, subscription = f"{topic}-{name}", f"s {name}"
    admin.do("PUT", full)
    with RawClient(server.port) as client:
        client.subscribe(full, subscription)
    assert admin.get(full, "/subscriptions") == [subscription]
    assert full in admin.http.get("/admin/v2/persistent/public/default").json()
    admin.do("DELETE", full, f"/subscription/{quote(subscription, safe='')}?force=true")
    admin.do("DELETE", full)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/admin/v2/persistent/no/such", 404),
        ("GET", "/admin/v2/namespaces/no/such/topics", 404),
        ("PUT", "/admin/v2/persistent/no/such/t", 404),
        ("GET", "/admin/v2/persistent/public/default/nobody-made-it/internalStats", 404),
        ("GET", "/admin/v2/persistent/public/default/nobody-made-it/messageid/1", 404),
        ("GET", "/admin/v2/persistent/public/default/nobody-made-it/subscriptions", 404),
        ("PUT", "/admin/v2/persistent/public/default/nobody-made-it-partition-9", 412),
        ("PUT", "/admin/v2/persistent/public/default/%2E%2E", 412),
        ("PATCH", "/admin/v2/persistent/public/default/t", 405),
        ("GET", "/admin/v2/worker/cluster", 501),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(admin: Admin, method: str, path: str, status: int) -> None:
    response = admin.http.request(method, path)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["reason"]
    assert response.json()["reason"]


def test_a_body_that_is_too_large_is_refused_and_the_next_one_read(admin: Admin, topic: str) -> None:
    assert admin.ask("PUT", topic, "/partitions", content=b"9" * (8 << 20)).status_code == 413
    admin.do("PUT", topic, "/partitions", json=1)


def test_what_was_asked_is_done_though_nobody_waits_for_the_answer(
    server: StandaloneProcess, admin: Admin, topic: str
) -> None:
    with socket.create_connection(("127.0.0.1", server.web_port), timeout=10) as gone:
        gone.sendall(request_head(topic, size=2) + b"16")

    def is_there() -> bool:
        found = admin.ask("GET", topic, "/partitions")
        return bool(found.status_code == 200 and found.json()["partitions"] == 16)

    wait_until(is_there)


def test_a_request_that_is_broken_off_harms_nobody(server: StandaloneProcess, admin: Admin, topic: str) -> None:
    with socket.create_connection(("127.0.0.1", server.web_port), timeout=10) as gone:
        gone.sendall(request_head(topic, size=20) + b"16")
        gone.shutdown(socket.SHUT_WR)
        while gone.recv(4096):
            pass  # until the server has done with it
    assert admin.ask("GET", topic, "/partitions").status_code == 404


def request_head(topic: str, *, size: int) -> bytes:
    local = topic.rpartition("/")[2]
    return (
        f"PUT /admin/v2/persistent/public/default/{local}/partitions HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode()
