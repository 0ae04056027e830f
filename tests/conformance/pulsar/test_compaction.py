"""Compaction as the official client sees it: readers, table views, consumers, the admin REST, and kill -9."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pulsar
import pytest

from tests.support.admin_rest import Admin
from tests.support.refusals import refuses
from tests.support.server import standalone
from tests.support.waiting import wait_until

RECEIVE_MS = 10_000
STATUS = "/compaction"


def is_done(admin: Admin, topic: str) -> bool:
    return bool(admin.get(topic, STATUS)["status"] != "RUNNING")


def compact(admin: Admin, topic: str) -> None:
    admin.do("PUT", topic, STATUS)
    wait_until(partial(is_done, admin, topic))
    assert admin.get(topic, STATUS) == {"status": "SUCCESS", "lastError": ""}


def view(client: pulsar.Client, topic: str) -> list[tuple[str, bytes]]:
    """Return what a compacted reader gets from the start to the end that it is told.

    The C++ client hands out messages that were left out of a batch: they have no key."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_MS)
        if message.partition_key():
            found.append((message.partition_key(), bytes(message.data())))
    reader.close()
    return found


@pytest.mark.parametrize("batching", [False, True])
def test_a_reader_gets_the_newest_of_each_key(
    admin: Admin, client: pulsar.Client, topic: str, *, batching: bool
) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=batching,
        batching_max_publish_delay_ms=500,
        compression_type=pulsar.CompressionType.LZ4 if batching else pulsar.CompressionType.NONE,
    )
    assert admin.get(topic, STATUS) == {"status": "NOT_RUN", "lastError": ""}
    for number in range(60):
        value = b"" if number % 10 == 3 and number > 49 else b"v%d" % number
        producer.send_async(value, lambda *_: None, partition_key=f"k{number % 10}")
    producer.flush()
    compact(admin, topic)
    expected = [(f"k{number % 10}", b"v%d" % number) for number in range(50, 60) if number != 53]
    assert view(client, topic) == expected
    producer.send(b"new", partition_key="k0")
    assert view(client, topic) == [*expected, ("k0", b"new")]
    stats = admin.get(topic, "/internalStats")
    assert stats["compactedLedger"]["entries"] == (1 if batching else 9)
    assert stats["cursors"]["__compaction"]["properties"] == {
        "CompactedTopicLedger": stats["compactedLedger"]["ledgerId"]
    }
    counted = admin.get(topic, "/stats")["compaction"]
    assert (counted["lastCompactionRemovedEventCount"], counted["lastCompactionFailedTimestamp"]) == (51, 0)
    compact(admin, topic)
    assert view(client, topic) == [*expected[1:], ("k0", b"new")]


def test_a_table_view_has_what_a_compacted_topic_has(admin: Admin, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 4}")
    producer.send(None, partition_key="k3")
    compact(admin, topic)
    table = client.create_table_view(topic)
    assert dict((key, table.get(key)) for key in ("k0", "k1", "k2", "k3")) == {
        "k0": b"16",
        "k1": b"17",
        "k2": b"18",
        "k3": None,
    }
    producer.send(b"later", partition_key="k3")
    wait_until(lambda: table.get("k3") == b"later")
    table.close()


def test_a_null_value_deletes_its_key(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s", is_read_compacted=True).close()
    producer = client.create_producer(topic)
    for key, value in (("a", b"1"), ("b", b"2"), ("a", None), ("c", b"3")):
        producer.send(value, partition_key=key)
    compact(admin, topic)
    consumer = client.subscribe(topic, "s", is_read_compacted=True)
    for expected in (b"2", b"3"):
        message = consumer.receive(RECEIVE_MS)
        assert bytes(message.data()) == expected
        consumer.acknowledge_cumulative(message)
    refuses(pulsar.Timeout, lambda: consumer.receive(300))
    consumer.close()
    again = client.subscribe(topic, "s", is_read_compacted=True)
    refuses(pulsar.Timeout, lambda: again.receive(300))
    assert view(client, topic) == [("b", b"2"), ("c", b"3")]


def test_the_answers_of_the_admin_rest(admin: Admin, client: pulsar.Client, topic: str) -> None:
    assert admin.ask("PUT", topic, STATUS).status_code == 404
    assert admin.ask("GET", topic, STATUS).status_code == 404
    client.create_producer(topic).send(b"x", partition_key="a")
    compact(admin, topic)
    assert admin.get(topic, "/subscriptions") == ["__compaction"]
    assert admin.ask("PUT", topic, "/subscription/__compaction").status_code == 412
    admin.do("DELETE", topic, "/subscription/__compaction")
    assert admin.ask("DELETE", topic, "/subscription/__compaction").status_code == 404
    assert admin.get(topic, "/internalStats")["compactedLedger"]["ledgerId"] == -1
    assert admin.get(topic, "/subscriptions") == []
    refuses(pulsar.PulsarException, lambda: client.subscribe(topic, "__compaction"))
    parts = f"{topic}-parts"
    assert admin.ask("PUT", parts, "/partitions", json=2).status_code == 204
    producer = client.create_producer(parts)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 5}")
    admin.do("PUT", parts, STATUS)
    assert admin.ask("GET", parts, STATUS).status_code == 405
    for index in range(2):
        wait_until(partial(is_done, admin, f"{parts}-partition-{index}"))
    found = [pair for index in range(2) for pair in view(client, f"{parts}-partition-{index}")]
    assert sorted(found) == [(f"k{number % 5}", b"%d" % number) for number in range(15, 20)]


def test_a_truncated_topic_has_no_view(admin: Admin, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"x", partition_key="a")
    compact(admin, topic)
    admin.do("DELETE", topic, "/truncate")
    assert admin.get(topic, "/internalStats")["compactedLedger"]["ledgerId"] == -1
    producer.send(b"y", partition_key="a")
    compact(admin, topic)
    assert view(client, topic) == [("a", b"y")]


def test_a_kill_at_any_moment_leaves_the_old_or_the_new_view(tmp_path: Path) -> None:
    """kill -9 while topics are compacted, five times; each reader gets one of the two views, which are alike here."""
    rng = random.Random(7)
    topic = "persistent://public/default/killed"
    conf: dict[str, object] = {
        "managedLedgerMaxEntriesPerLedger": 50,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    }
    with standalone(tmp_path, conf) as server:
        latest: dict[str, bytes] = {}
        for turn in range(5):
            client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
            admin = Admin(server)
            with admin.http:
                producer = client.create_producer(topic, batching_enabled=bool(turn % 2))
                if not turn:
                    compact(admin, topic)  # from here on nothing is trimmed before it is compacted
                for number in range(300):
                    key, value = f"k{rng.randrange(40)}", b"%d-%d" % (turn, number)
                    if rng.random() < 0.1:
                        value = b""
                    latest.pop(key, None)
                    if value:
                        latest[key] = value
                    producer.send_async(value, lambda *_: None, partition_key=key)
                producer.flush()
                admin.do("PUT", topic, STATUS)
                time.sleep(rng.random() * 0.05)  # the kill comes at some step
            server.kill()
            client.shutdown()  # close would wait for the server
            server.start()
            client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
            found: dict[str, bytes] = {}
            for key, value in view(client, topic):
                found.pop(key, None)
                if value:
                    found[key] = value
            assert found == latest
            client.close()
