"""Configuration that changes while a server runs, and holds after its restart; what the broker says of its load."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from tests.support import web
from tests.support.admin_rest import Admin, publish
from tests.support.server import StandaloneProcess, standalone

PLACE = "/admin/v2/brokers/configuration"


def may_create(server: StandaloneProcess, topic: str) -> bool:
    """Return whether a first use makes a topic."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    client = pulsar.Client(server.url, operation_timeout_seconds=2, logger=logger)
    try:
        client.create_producer(f"persistent://public/default/{topic}")
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
    return True


def ask(server: StandaloneProcess, method: str, path: str) -> int:
    return web.request(method, f"{server.web}{path}", timeout=20).status_code


def test_a_key_is_changed_while_the_server_runs_and_stays_changed_after_a_kill(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        assert may_create(server, "one")
        assert ask(server, "POST", f"{PLACE}/allowAutoTopicCreation/false") == 200
        assert not may_create(server, "two")
        server.kill()
        server.start()
        assert not may_create(server, "three")
        assert ask(server, "DELETE", f"{PLACE}/allowAutoTopicCreation") == 200
        assert may_create(server, "four")
        found = web.get(f"{server.web}{PLACE}/runtime", timeout=20).json()
        assert found["allowAutoTopicCreation"] == "true"
        assert found["clusterName"] == "standalone"


def test_a_broker_says_what_it_serves(
    server: StandaloneProcess, admin: Admin, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, 3)
    direct = topic.replace("persistent", "non-persistent", 1)
    heard = client.subscribe(direct, "d")
    producer = client.create_producer(topic)
    found = web.get(f"{server.web}/admin/v2/broker-stats/topics", timeout=20).json()["public/default"]
    [(bundle, kinds)] = found.items()
    assert bundle == "0x00000000_0xffffffff"
    stats = kinds["persistent"][topic]
    assert (stats["msgInCount"], stats["producerCount"], stats["pendingAddEntriesCount"]) == (3, 1, 0)
    assert stats["storageSize"] == stats["bytesInCount"] > 0
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    assert len(stats["subscriptions"]["s"]["consumers"]) == 1
    assert list(kinds["non-persistent"][direct]["subscriptions"]) == ["d"]
    report = web.get(f"{server.web}/admin/v2/broker-stats/load-report", timeout=20).json()
    assert report["pulsarServiceUrl"] == server.url
    assert report["persistentTopicsEnabled"] is True
    assert report["startTimestamp"] > 0
    of_namespace = report["lastStats"][f"public/default/{bundle}"]
    assert of_namespace["topics"] >= 2
    assert of_namespace["producerCount"] >= 1
    assert report["numTopics"] == sum(each["topics"] for each in report["lastStats"].values())
    producer.close()
    consumer.close()
    heard.close()


@pytest.mark.parametrize("path", ["functions/public/default", "sinks/public/default", "packages/function"])
def test_what_does_not_exist_is_said_so(server: StandaloneProcess, path: str) -> None:
    assert ask(server, "GET", f"/admin/v3/{path}") == 501
