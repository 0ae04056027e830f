"""Explanations of a server, beside the official client: a cause is named, and when it is removed messages arrive."""

from __future__ import annotations

import subprocess
import sys

import pulsar

from tests.support.admin_rest import Admin, publish
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000


def cause(admin: Admin, topic: str, subscription: str = "s") -> str:
    found: str = admin.get(topic, f"/subscription/{subscription}/explain")["cause"]
    return found


def test_the_cause_is_named_until_messages_arrive(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    assert cause(admin, topic) == "caught-up"
    publish(client, topic, 8)
    found = admin.get(topic, "/subscription/s/explain")
    assert (found["cause"], found["state"], found["details"]["backlog"]) == ("no-consumers", "blocked", 8)
    assert found["subject"] == f"subscription s of {topic}"
    assert found["sentence"]
    assert found["remedy"]

    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name="c", receiver_queue_size=3)
    wait_until(lambda: cause(admin, topic) == "no-permits")  # its queue is full
    got = [consumer.receive(RECEIVE_MS) for _ in range(8)]
    wait_until(lambda: cause(admin, topic) == "delivered-unacknowledged")
    for message in got:
        consumer.acknowledge(message)
    wait_until(lambda: cause(admin, topic) == "caught-up")


def test_a_topic_tells_of_producers_ledgers_and_subscriptions(
    admin: Admin, client: pulsar.Client, topic: str, server: StandaloneProcess
) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic, "p")
    producer.send(b"x")
    found = admin.get(topic, "/explain")
    assert (found["topic"], found["producers"]["cause"]) == (topic, "flowing")
    assert found["subscriptions"]["s"]["cause"] == "no-consumers"
    assert [each["cause"] for each in found["ledgers"]] == ["current-ledger"]
    command = [sys.executable, "-m", "quire.cli.main", "admin", "explain", topic, "-s", "s", "--url", server.web]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0] == f"subscription s of {topic}: blocked, no-consumers"


def test_a_partitioned_topic_tells_of_each_partition(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=2)
    client.subscribe(topic, "s").close()
    found = admin.get(topic, "/subscription/s/explain")["partitions"]
    assert {name: each["cause"] for name, each in found.items()} == {
        f"{topic}-partition-0": "caught-up",
        f"{topic}-partition-1": "caught-up",
    }
    assert admin.ask("GET", topic, "/subscription/other/explain").status_code == 404


def test_what_does_not_exist_is_404(admin: Admin, client: pulsar.Client, topic: str) -> None:
    assert admin.ask("GET", topic, "/subscription/s/explain").status_code == 404
    assert admin.ask("GET", topic, "/explain").status_code == 404
    client.create_producer(topic).close()
    answer = admin.ask("GET", topic, "/subscription/s/explain")
    assert (answer.status_code, "s" in answer.json()["reason"]) == (404, True)
    assert admin.ask("POST", topic, "/subscription/s/explain").status_code == 405
