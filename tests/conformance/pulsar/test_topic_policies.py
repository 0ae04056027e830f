"""Policies of topics over REST, as the official Python client meets them: obeyed at once, stored as events in
`__change_events`, and kept over kill -9."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pulsar
import pytest

from broker.topics.topic_policies.avro import decode
from broker.topics.topic_policies.event_schema import event_type
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until

KEPT = {"retentionTimeInMinutes": 90, "retentionSizeInMB": 50}
RECEIVE_MS = 10_000


def rest(server: StandaloneProcess, method: str, path: str, **options: Any) -> httpx2.Response:
    return httpx2.request(method, f"{server.web}/admin/v2{path}", timeout=20, **options)


def done(server: StandaloneProcess, method: str, path: str, **options: Any) -> None:
    answer = rest(server, method, path, **options)
    assert answer.status_code == 204, answer.text


def client_at(server: StandaloneProcess) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def test_a_policy_of_a_topic_holds_at_once_and_over_a_kill(tmp_path: Path) -> None:
    topic, path = "persistent://public/default/orders", "/persistent/public/default/orders"
    with standalone(tmp_path) as server:
        client = client_at(server)
        client.create_producer(topic).close()
        done(server, "POST", f"{path}/deduplicationEnabled", json=True)
        done(server, "POST", f"{path}/retention", json=KEPT)
        producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
        producer.send(b"first", sequence_id=7)
        assert producer.last_sequence_id() == 7
        server.kill()
        server.start()
        assert rest(server, "GET", f"{path}/retention").json() == KEPT
        assert rest(server, "GET", f"{path}/deduplicationEnabled?applied=true").json() is True
        client.close()
        client = client_at(server)
        producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
        assert producer.last_sequence_id() == 7, "duplicates are dropped as before"
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        producer.send(b"again", sequence_id=7)
        producer.send(b"second", sequence_id=8)
        assert [reader.read_next(RECEIVE_MS).data() for _ in range(2)] == [b"first", b"second"]
        client.close()


def test_clients_read_the_events_and_do_not_get_them_by_a_pattern(tmp_path: Path) -> None:
    namespace, path = "/namespaces/public/default", "/persistent/public/default/orders"
    events = "persistent://public/default/__change_events"
    with standalone(tmp_path) as server:
        client = client_at(server)
        client.create_producer("persistent://public/default/orders").send(b"m")
        done(server, "POST", f"{path}/messageTTL?messageTTL=60")
        done(server, "DELETE", f"{path}/messageTTL")
        done(server, "DELETE", f"{path}?force=true")
        reader = client.create_reader(events, pulsar.MessageId.earliest)
        found = [reader.read_next(RECEIVE_MS) for _ in range(3)]
        assert {each.partition_key() for each in found} == {"persistent://public/default/orders"}
        said = [decode(event_type(), each.data())["topicPoliciesEvent"]["policies"] for each in found[:2]]
        assert [each["messageTTLInSeconds"] for each in said] == [60, None]
        assert found[2].data() == b"", "there are none any more"
        assert rest(server, "GET", f"{namespace}/topics").json() == []
        assert rest(server, "GET", "/persistent/public/default?includeSystemTopic=true").json() == [events]
        assert client.get_topic_partitions(events) == [events]
        reader.close()
        client.close()


def test_what_is_not_obeyed_is_refused_by_its_name_and_not_stored(server: StandaloneProcess) -> None:
    path = "/persistent/public/default/refused-policies"
    done(server, "PUT", path)
    answer = rest(server, "POST", f"{path}/offloadPolicies", json={"managedLedgerOffloadDriver": "aws-s3"})
    assert answer.status_code == 412
    assert "offloadPolicies" in answer.json()["reason"]
    assert rest(server, "GET", f"{path}/offloadPolicies").status_code == 200


def test_a_namespace_goes_with_the_policies_of_its_topics(server: StandaloneProcess) -> None:
    namespace, path = "/namespaces/public/with-policies", "/persistent/public/with-policies/t"
    done(server, "PUT", namespace)
    done(server, "PUT", path)
    done(server, "POST", f"{path}/retention", json=KEPT)
    assert rest(server, "DELETE", namespace).status_code == 409, "it has a topic"
    done(server, "DELETE", path)
    done(server, "DELETE", namespace)
    done(server, "PUT", namespace)
    done(server, "PUT", path)
    assert rest(server, "GET", f"{path}/retention").status_code == 200
    assert rest(server, "GET", "/persistent/public/with-policies?includeSystemTopic=true").json() == [
        "persistent://public/with-policies/t"
    ]


@pytest.mark.parametrize("partitions", [0, 2])
def test_properties_of_a_topic_are_kept_over_a_kill(tmp_path: Path, partitions: int) -> None:
    path = "/persistent/public/default/t"
    given = {"team": "a", "ä": "b"}
    with standalone(tmp_path) as server:
        if partitions:
            kind = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}
            body = {"partitions": partitions, "properties": given}
            done(server, "PUT", f"{path}/partitions", json=body, headers=kind)
        else:
            done(server, "PUT", path, json=given)
        assert rest(server, "GET", f"{path}/properties").json() == given
        done(server, "PUT", f"{path}/properties", json={"team": "c", "more": "d"})
        done(server, "DELETE", f"{path}/properties?key=ä")
        server.kill()
        server.start()
        assert rest(server, "GET", f"{path}/properties").json() == {"team": "c", "more": "d"}
        client = client_at(server)
        client.create_producer("persistent://public/default/t").send(b"m")
        client.close()
        assert rest(server, "PUT", f"{path}/properties", json={}).status_code == 204, "as with the original"
        for wrong in ({"pulsar.topic.epoch": "7"}, {"x": "y" * 40_000}):
            assert rest(server, "PUT", f"{path}/properties", json=wrong).status_code == 412
        assert rest(server, "DELETE", f"{path}/properties?key=").status_code == 412
        assert rest(server, "GET", f"{path}/properties").json() == {"team": "c", "more": "d"}
        assert rest(server, "GET", "/persistent/public/default/none/properties").status_code == 404


def takes(producer: pulsar.Producer, payload: bytes, taken: list[bytes]) -> bool:
    """Send a message; return False if it is refused."""
    try:
        producer.send(payload)
    except pulsar.PulsarException:
        return False
    taken.append(payload)
    return True


def test_encryption_types_of_subscriptions_and_sizes_are_obeyed(tmp_path: Path) -> None:
    topic, path = "persistent://public/default/orders", "/persistent/public/default/orders"
    namespace = "/namespaces/public/default"
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    keys = pulsar.CryptoKeyReader(str(public), str(private))
    with standalone(tmp_path / "data") as server:
        client = client_at(server)
        plain = client.create_producer(topic)
        plain.send(b"plain")
        done(server, "POST", f"{namespace}/encryptionRequired", json=True)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(topic)
        sender = client.create_producer(topic, encryption_key="k", crypto_key_reader=keys)
        sender.send(b"secret")
        reader = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=keys)
        assert [reader.read_next(RECEIVE_MS).data() for _ in range(2)] == [b"plain", b"secret"]
        done(server, "POST", f"{namespace}/encryptionRequired", json=False)
        plain = client.create_producer(topic)  # the first one is closed by its client
        plain.send(b"again")
        assert reader.read_next(RECEIVE_MS).data() == b"again"

        taken: list[bytes] = []  # a topic follows its policies soon after the answer
        done(server, "POST", f"{path}/maxMessageSize", json=1000)
        assert rest(server, "POST", f"{path}/maxMessageSize", json=(5 << 20) + 1).status_code == 412
        wait_until(lambda: not takes(plain, b"x" * 1000, taken), "the topic refuses large messages")
        plain.send(b"x" * 100)
        done(server, "DELETE", f"{path}/maxMessageSize")
        wait_until(lambda: takes(plain, b"x" * 1000, taken), "the topic takes them again")

        done(server, "POST", f"{path}/subscriptionTypesEnabled", json=["Shared"])
        with pytest.raises(pulsar.PulsarException):
            client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Failover)
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared).close()
        info = rest(server, "GET", f"{path}/internal-info").json()
        assert list(info["cursors"]) == ["s"]
        assert rest(server, "GET", f"{path}/backlog").json()["totalMessages"] == 4 + len(taken)
        client.close()
