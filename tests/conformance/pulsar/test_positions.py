"""Positions of subscriptions moved over the admin REST, as official consumers see it, and across kill -9."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pulsar

from tests.support.admin_rest import Admin, as_json, publish, wait_for_the_next_millisecond
from tests.support.refusals import refuses
from tests.support.server import standalone

RECEIVE_MS = 10_000


def received(client: pulsar.Client, topic: str, count: int, name: str = "s") -> list[bytes]:
    """Return the next deliveries of a subscription, without acknowledging them."""
    consumer = client.subscribe(topic, name)
    try:
        return [bytes(consumer.receive(RECEIVE_MS).data()) for _ in range(count)]
    finally:
        consumer.close()


def backlog(admin: Admin, topic: str, name: str = "s") -> int:
    stats = admin.get(topic, "/internalStats")
    return int(stats["entriesAddedCounter"] - stats["cursors"][name]["messagesConsumedCounter"])


def numbers(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last)]


def test_a_cursor_is_reset_to_an_id_under_a_connected_consumer(admin: Admin, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = publish(client, topic, 6)
    for _ in range(6):
        consumer.acknowledge(consumer.receive(RECEIVE_MS))
    admin.do("POST", topic, "/subscription/s/resetcursor", json={**as_json(ids[2]), "batchIndex": -1})
    assert [bytes(consumer.receive(RECEIVE_MS).data()) for _ in range(4)] == numbers(2, 6)
    admin.do("POST", topic, "/subscription/s/resetcursor", json={**as_json(ids[2]), "isExcluded": True})
    assert [bytes(consumer.receive(RECEIVE_MS).data()) for _ in range(3)] == numbers(3, 6)
    admin.do("POST", topic, "/subscription/s/resetcursor", json={"ledgerId": -1, "entryId": -1})
    assert bytes(consumer.receive(RECEIVE_MS).data()) == b"m0"
    assert admin.ask("POST", topic, "/subscription/none/resetcursor", json=as_json(ids[0])).status_code == 404


def test_a_cursor_is_reset_into_a_batch(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    for payload in numbers(0, 5):
        producer.send_async(payload, None)
    producer.flush()
    consumer = client.subscribe(topic, "s")
    messages = [consumer.receive(RECEIVE_MS) for _ in range(5)]
    consumer.close()
    third = messages[2].message_id()
    assert third.batch_index() == 2, "the client made one batch"
    for excluded in (False, True):
        body = {**as_json(third), "batchIndex": 2, "isExcluded": excluded}
        admin.do("POST", topic, "/subscription/s/resetcursor", json=body)
        assert received(client, topic, 1) == [b"m%d" % (2 + excluded)]


def test_a_cursor_is_reset_to_a_time_on_every_partition(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=3)
    client.subscribe(topic, "s").close()
    producer = client.create_producer(
        topic, batching_enabled=False, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for payload in numbers(0, 6):
        producer.send(payload)
    wait_for_the_next_millisecond()
    between = time.time_ns() // 1_000_000
    wait_for_the_next_millisecond()
    for payload in numbers(6, 12):
        producer.send(payload)
    admin.do("POST", topic, "/subscription/s/skip_all")
    admin.do("POST", topic, f"/subscription/s/resetcursor/{between}")
    assert sorted(received(client, topic, 6)) == sorted(numbers(6, 12))
    response = admin.ask("POST", topic, "/subscription/s/resetcursor", json={"ledgerId": -1, "entryId": -1})
    assert response.status_code == 405
    assert admin.ask("POST", topic, "/subscription/none/skip_all").status_code == 404


def test_messages_are_skipped_and_those_acknowledged_do_not_count(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    publish(client, topic, 10)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(10)]
    for each in (1, 3):
        consumer.acknowledge(messages[each])
    consumer.close()
    admin.do("POST", topic, "/subscription/s/skip/3")
    assert backlog(admin, topic) == 5
    assert received(client, topic, 1) == [b"m5"]
    admin.do("POST", topic, "/subscription/s/skip/100")
    assert backlog(admin, topic) == 0
    assert admin.ask("POST", topic, "/subscription/s/skip/-1").status_code == 412
    assert admin.ask("POST", topic, "/subscription/s/skip/x").status_code == 400


def test_messages_expire_by_age_and_up_to_an_id(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    client.subscribe(topic, "other").close()
    assert admin.ask("POST", topic, "/subscription/s/expireMessages/5").status_code == 409
    ids = publish(client, topic, 6)
    admin.do("POST", topic, "/subscription/s/expireMessages/3600")
    assert backlog(admin, topic) == 6
    admin.do("POST", topic, "/subscription/s/expireMessages", json=as_json(ids[1]))
    assert (backlog(admin, topic), backlog(admin, topic, "other")) == (4, 6)
    assert received(client, topic, 1) == [b"m2"]
    admin.do("POST", topic, "/subscription/s/expireMessages", json={**as_json(ids[2]), "isExcluded": True})
    assert backlog(admin, topic) == 4
    wait_for_the_next_millisecond()
    admin.do("POST", topic, "/all_subscription/expireMessages/0")
    assert (backlog(admin, topic), backlog(admin, topic, "other")) == (0, 0)
    beyond = {"ledgerId": ids[0].ledger_id(), "entryId": 999}
    assert admin.ask("POST", topic, "/subscription/s/expireMessages", json=beyond).status_code == 409


def test_messages_are_looked_at_with_their_metadata(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(
        topic, producer_name="prod-é", batching_enabled=False, compression_type=pulsar.CompressionType.LZ4
    )
    first = producer.send(
        b"a" * 1000, properties={"k": "v", "line": "two\nlines"}, partition_key="key", event_timestamp=1_700_000_000_123
    )
    second = producer.send(b"second")
    response = admin.ask("GET", topic, "/subscription/s/position/1")
    assert (response.status_code, response.content) == (200, b"a" * 1000)
    headers = response.headers
    assert headers["X-Pulsar-Message-ID"] == f"{first.ledger_id()}:{first.entry_id()}"
    assert json.loads(headers["X-Pulsar-PROPERTY"]) == {"k": "v", "line": "two\nlines"}
    assert headers["X-Pulsar-event-time"] == "2023-11-14T22:13:20.123Z"
    assert headers["X-Pulsar-publish-time"].endswith("Z")
    assert (headers["X-Pulsar-partition-key"], headers["X-Pulsar-sequence-id"]) == ("key", "0")
    assert (headers["X-Pulsar-compression"], headers["X-Pulsar-uncompressed-size"]) == ("LZ4", "1000")
    raw_name = next(value for name, value in headers.raw if name.lower() == b"x-pulsar-producer-name")
    assert raw_name.decode() == "prod-é"
    assert "X-Pulsar-num-batch-message" not in headers
    admin.do("POST", topic, "/subscription/s/skip/1")
    assert admin.ask("GET", topic, "/subscription/s/position/1").content == b"second"
    assert admin.ask("GET", topic, "/subscription/s/position/2").status_code == 404
    assert admin.ask("GET", topic, "/examinemessage?initialPosition=earliest&messagePosition=2").content == b"second"
    assert admin.ask("GET", topic, "/examinemessage?initialPosition=latest&messagePosition=2").content == b"a" * 1000
    assert admin.ask("GET", topic, "/examinemessage").content == b"second"
    entry = f"/ledger/{second.ledger_id()}/entry/{second.entry_id()}"
    assert admin.ask("GET", topic, entry).content == b"second"
    assert admin.ask("GET", topic, f"/ledger/{second.ledger_id()}/entry/77").status_code == 404
    sizes = [admin.ask("PUT", topic, "/backlogSize", json=as_json(each)).json() for each in (first, second)]
    assert 0 < sizes[0] < 1000
    assert sizes[1] == 0


def test_an_empty_topic_has_no_message_to_examine(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    assert admin.ask("GET", topic, "/examinemessage").status_code == 412
    assert admin.ask("GET", topic, "/subscription/s/position/1").status_code == 404


def test_properties_of_a_subscription_are_replaced(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=2)
    client.subscribe(topic, "s").close()
    assert admin.get(topic, "/subscription/s/properties") == {}
    admin.do("PUT", topic, "/subscription/s/properties", json={"a": "1", "b": "é"})
    assert admin.get(topic, "/subscription/s/properties") == {"a": "1", "b": "é"}
    assert admin.get(f"{topic}-partition-1", "/subscription/s/properties") == {"a": "1", "b": "é"}
    admin.do("PUT", topic, "/subscription/s/properties", json={})
    assert admin.get(topic, "/subscription/s/properties") == {}
    assert admin.ask("PUT", topic, "/subscription/s/properties", json={"a": 1}).status_code == 400


def test_a_terminated_topic_takes_nothing_and_is_read_to_its_end(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "s").close()
    ids = publish(client, topic, 3)
    producer = client.create_producer(topic, batching_enabled=False)
    response = admin.ask("POST", topic, "/terminate")
    assert (response.status_code, response.json()) == (200, as_json(ids[2]))
    assert admin.ask("POST", topic, "/terminate").json() == as_json(ids[2])
    refuses(pulsar.TopicTerminated, lambda: client.create_producer(topic))
    refuses(pulsar.PulsarException, lambda: producer.send(b"late"))
    assert received(client, topic, 3) == numbers(0, 3)
    assert admin.get(topic, "/internalStats")["state"] == "Terminated"
    admin.do("PUT", topic, "/unload")
    assert admin.get(topic, "/internalStats")["state"] == "Terminated"
    assert received(client, topic, 3) == numbers(0, 3)


def test_partitions_are_terminated_together(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "/partitions", json=2)
    assert admin.ask("POST", topic, "/terminate").status_code == 405
    found = admin.ask("POST", topic, "/terminate/partitions").json()
    assert sorted(found) == ["0", "1"]
    assert [each["partitionIndex"] for _, each in sorted(found.items())] == [0, 1]
    assert admin.ask("POST", f"{topic}-partition-0", "/terminate/partitions").status_code == 405
    refuses(pulsar.PulsarException, lambda: client.create_producer(topic))


def test_a_truncated_topic_keeps_nothing_but_its_open_ledger(admin: Admin, client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    publish(client, topic, 5)
    admin.do("PUT", topic, "/unload")
    before = admin.get(topic, "/internalStats")
    assert before["numberOfEntries"] == 5
    assert admin.ask("POST", topic, "/trim").status_code == 200
    assert admin.get(topic, "/internalStats")["numberOfEntries"] == 5
    admin.do("DELETE", topic, "/truncate")
    after = admin.get(topic, "/internalStats")
    assert after["numberOfEntries"] == 0
    assert not {each["ledgerId"] for each in before["ledgers"]} & {each["ledgerId"] for each in after["ledgers"]}
    publish(client, topic, 1)
    assert received(client, topic, 1) == [b"m0"]


def test_backlogs_and_subscriptions_of_a_namespace(admin: Admin, client: pulsar.Client) -> None:
    space = "/admin/v2/namespaces/public/positions"
    assert admin.http.put(space, json={"bundles": {"numBundles": 2}}).status_code == 204
    topics = [f"persistent://public/positions/t{number}" for number in range(4)]
    for topic in topics:
        client.subscribe(topic, "s").close()
        client.subscribe(topic, "other").close()
        publish(client, topic, 2)

    def backlogs(name: str) -> list[int]:
        found = []
        for topic in topics:
            path = topic.replace("persistent://", "/admin/v2/persistent/") + "/internalStats"
            stats = admin.http.get(path).json()
            found.append(stats["entriesAddedCounter"] - stats["cursors"][name]["messagesConsumedCounter"])
        return found

    assert admin.http.post(f"{space}/0x00000000_0x80000000/clearBacklog/s").status_code == 204
    assert set(backlogs("s")) == {0, 2}, "topics of one bundle"
    assert admin.http.post(f"{space}/clearBacklog/s").status_code == 204
    assert (backlogs("s"), backlogs("other")) == ([0] * 4, [2] * 4)
    assert admin.http.post(f"{space}/clearBacklog").status_code == 204
    assert backlogs("other") == [0] * 4
    assert admin.http.post(f"{space}/unsubscribe/other").status_code == 204
    for topic in topics:
        path = topic.replace("persistent://", "/admin/v2/persistent/") + "/subscriptions"
        assert admin.http.get(path).json() == ["s"]
    consumer = client.subscribe(topics[0], "s")
    assert admin.http.post(f"{space}/unsubscribe/s").status_code == 412
    consumer.close()
    assert admin.http.post(f"{space}/0x00000000_0x11111111/clearBacklog").status_code == 404


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        admin = Admin(server)
        topics = [f"persistent://public/default/k{number}" for number in range(5)]
        client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        for topic in topics:
            client.subscribe(topic, "s").close()
            ids = publish(client, topic, 6)
            if topic == topics[2]:
                admin.do("POST", topic, "/subscription/s/skip_all")
                admin.do("POST", topic, "/subscription/s/resetcursor", json=as_json(ids[4]))
            if topic == topics[3]:
                admin.do("POST", topic, "/subscription/s/expireMessages", json=as_json(ids[2]))
        admin.do("POST", topics[0], "/subscription/s/skip/2")
        admin.do("POST", topics[1], "/subscription/s/skip_all")
        admin.do("PUT", topics[4], "/subscription/s/properties", json={"k": "v"})
        assert admin.ask("POST", topics[4], "/terminate").status_code == 200
        client.close()
        server.kill()
        server.start()
        client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        for topic, first in ((topics[0], 2), (topics[2], 4), (topics[3], 3), (topics[4], 0)):
            assert received(client, topic, 1) == [b"m%d" % first], topic
        assert admin.ask("GET", topics[1], "/subscription/s/position/1").status_code == 404
        assert admin.get(topics[4], "/subscription/s/properties") == {"k": "v"}
        refuses(pulsar.TopicTerminated, lambda: client.create_producer(topics[4]))
        client.close()
        admin.http.close()


def test_redelivery_counts_survive_the_last_consumer_and_a_kill(tmp_path: Path) -> None:
    def refused(client: pulsar.Client, times: int) -> list[int]:
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
        counts = []
        for _ in range(times):
            message = consumer.receive(RECEIVE_MS)
            counts.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        consumer.receive(RECEIVE_MS)
        consumer.close()
        return counts

    topic = "persistent://public/default/poison"
    with standalone(tmp_path) as server:
        client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
        publish(client, topic, 1)
        assert refused(client, 2) == [0, 1]
        assert refused(client, 2) == [2, 3]
        client.close()
        server.kill()
        server.start()
        client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        # The last one may have been on its way to the disk.
        assert refused(client, 1)[0] in (3, 4)
        client.close()


def test_a_backlog_is_counted_in_entries_and_messages(admin: Admin, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)
    ids = publish(client, topic, 3)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=500)
    for payload in numbers(3, 8):
        producer.send_async(payload, None)
    producer.flush()
    messages = [consumer.receive(RECEIVE_MS) for _ in range(8)]
    consumer.acknowledge(messages[1])
    consumer.close()
    found = admin.ask("POST", topic, "/subscription/s/analyzeBacklog").json()
    assert (found["entries"], found["messages"], found["aborted"]) == (3, 7, False)
    assert found["firstMessageId"] == f"{ids[0].ledger_id()}:{ids[0].entry_id()}"
    found = admin.ask("POST", topic, "/subscription/s/analyzeBacklog", json=as_json(ids[2])).json()
    assert (found["entries"], found["filterAcceptedMessages"]) == (2, 6)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(7)]
    consumer.acknowledge(messages[3])
    consumer.close()
    precise = admin.get(topic, "/stats?getPreciseBacklog=true")["subscriptions"]["s"]
    assert precise["msgBacklog"] == 6, "without the acknowledged message of the batch"


def test_the_age_of_messages_and_subscriptions_is_set_for_a_namespace_and_a_topic(
    admin: Admin, client: pulsar.Client, topic: str
) -> None:
    space = "/admin/v2/namespaces/public/expiring"
    assert admin.http.put(space, json={}).status_code == 204
    for resource in ("messageTTL", "subscriptionExpirationTime"):
        path = f"{space}/{resource}"
        assert admin.http.get(path).status_code == 200
        assert admin.http.post(path, json=7).status_code == 204
        assert admin.http.get(path).json() == 7
        assert admin.http.post(path, json=-1).status_code == 412
        assert admin.http.delete(path).status_code == 204
        assert admin.http.get(path).status_code == 200
    client.subscribe(topic, "s").close()
    assert admin.get(topic, "/messageTTL?applied=true") == 0
    assert admin.ask("GET", topic, "/messageTTL").status_code == 200
    admin.do("POST", topic, "/messageTTL?messageTTL=30")
    assert admin.get(topic, "/messageTTL") == 30
    assert admin.get(topic, "/messageTTL?applied=true") == 30
    assert admin.ask("POST", topic, "/messageTTL?messageTTL=-30").status_code == 412
    assert admin.ask("POST", topic, "/messageTTL").status_code == 400
    admin.do("DELETE", topic, "/messageTTL")
    assert client.create_producer(topic).send(b"still served")


def test_topics_and_subscriptions_have_properties(admin: Admin, client: pulsar.Client, topic: str) -> None:
    admin.do("PUT", topic, "", json={"owner": "me"})
    client.create_producer(topic).close()
    admin.do("PUT", topic, "/properties", json={"team": "a", "é": "x"})
    admin.do("PUT", topic, "/unload")
    assert admin.get(topic, "/properties") == {"owner": "me", "team": "a", "é": "x"}
    admin.do("DELETE", topic, "/properties?key=team")
    admin.do("DELETE", topic, "/properties?key=none")
    assert admin.get(topic, "/properties") == {"owner": "me", "é": "x"}
    body = {"ledgerId": -1, "entryId": -1, "properties": {"kind": "audit"}}
    admin.do("PUT", topic, "/subscription/p", json=body)
    assert admin.get(topic, "/subscription/p/properties") == {"kind": "audit"}


def test_a_partitioned_topic_has_properties_and_gets_missing_partitions(admin: Admin, topic: str) -> None:
    assert admin.ask("POST", topic, "/createMissedPartitions").status_code == 404
    admin.do("PUT", topic, "/partitions", json={"partitions": 3, "properties": {"a": "1"}})
    admin.do("PUT", topic, "/properties", json={"b": "2"})
    assert admin.get(topic, "/properties") == {"a": "1", "b": "2"}
    admin.do("DELETE", topic, "/properties?key=a")
    assert admin.get(topic, "/properties") == {"b": "2"}
    missing = f"{topic}-partition-1"
    admin.do("DELETE", missing, "")
    assert admin.ask("GET", missing, "/properties").status_code == 404
    admin.do("POST", topic, "/createMissedPartitions")
    assert admin.get(missing, "/properties") == {}
