"""Schemas with the official Python client: registered, matched, refused, kept over kill -9, and shown over REST.

Its AvroSchema needs a package that is not installed here; JSON schemas carry the same definitions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import new_class
from typing import Any

import httpx2
import pulsar
import pytest
from pulsar.schema import BytesSchema, Integer, JsonSchema, Record, String, StringSchema

from tests.support.server import StandaloneProcess, standalone

_numbers = itertools.count()
RECEIVE_MS = 10_000
ZERO = "\0" * 8
"""Version of a topic's first schema, as the client shows it."""


def record(name: str, **fields: Any) -> Any:
    """Return a class of records."""
    return new_class(name, (Record,), exec_body=lambda body: body.update(fields))


First = record("Order", a=Integer())
Second = record("Order", a=Integer(), b=Integer())
Other = record("Order", z=String(required=True))


@pytest.fixture
def http(server: StandaloneProcess) -> Any:
    with httpx2.Client(base_url=f"{server.web}/admin/v2", timeout=20) as made:
        yield made


@pytest.fixture
def forward(http: httpx2.Client) -> str:
    """A topic in a namespace whose strategy is FORWARD, as readers of old messages need it."""
    namespace = f"public/schemas{next(_numbers)}"
    assert http.put(f"/namespaces/{namespace}", json={}).status_code == 204
    assert http.put(f"/namespaces/{namespace}/schemaCompatibilityStrategy", json="FORWARD").status_code == 204
    return f"persistent://{namespace}/t"


def refused(make: Callable[[], object]) -> None:
    with pytest.raises(pulsar.IncompatibleSchema):
        make()


def test_messages_carry_the_version_of_their_producers_schema(client: pulsar.Client, forward: str) -> None:
    consumer = client.subscribe(forward, "s", schema=JsonSchema(First))
    old = client.create_producer(forward, schema=JsonSchema(First))
    new = client.create_producer(forward, schema=JsonSchema(Second))
    old.send(First(a=1))
    new.send(Second(a=2, b=3))
    messages = [consumer.receive(RECEIVE_MS) for _ in range(2)]
    assert [each.value().a for each in messages] == [1, 2]
    assert [each.schema_version() for each in messages] == [ZERO, ZERO[:7] + "\1"]
    assert json.loads(messages[1].data()) == {"a": 2, "b": 3}


def test_what_does_not_go_with_the_topics_schema_is_refused(client: pulsar.Client, forward: str) -> None:
    producer = client.create_producer(forward, schema=JsonSchema(First))
    producer.send(First(a=1))
    refused(lambda: client.create_producer(forward, schema=JsonSchema(Other)))
    refused(lambda: client.create_producer(forward, schema=StringSchema()))
    refused(lambda: client.subscribe(forward, "s", schema=JsonSchema(Other)))
    refused(lambda: client.subscribe(forward, "s", schema=StringSchema()))
    plain = client.create_producer(forward, schema=BytesSchema())
    plain.send(b"not checked")
    reader = client.create_reader(forward, pulsar.MessageId.earliest)
    assert [reader.read_next(RECEIVE_MS).data() for _ in range(2)][1] == b"not checked"


def test_text_is_registered_and_its_consumer_matches(client: pulsar.Client, topic: str, http: httpx2.Client) -> None:
    producer = client.create_producer(topic, schema=StringSchema())
    consumer = client.subscribe(topic, "s", schema=StringSchema())
    producer.send("hello")
    assert consumer.receive(RECEIVE_MS).value() == "hello"
    found = http.get(f"/schemas/{topic.removeprefix('persistent://')}/schema").json()
    assert (found["type"], found["version"]) == ("STRING", 0)
    stats = http.get(f"/persistent/{topic.removeprefix('persistent://')}/internalStats").json()
    assert [(each["entries"], each["size"] > 0) for each in stats["schemaLedgers"]] == [(1, True)]


def test_partitions_share_a_schema_which_goes_with_the_topic(client: pulsar.Client, http: httpx2.Client) -> None:
    name = f"public/default/parted{next(_numbers)}"
    assert http.put(f"/persistent/{name}/partitions", content="3").status_code == 204
    producer = client.create_producer(f"persistent://{name}", schema=JsonSchema(First))
    for number in range(6):
        producer.send(First(a=number))
    assert http.get(f"/schemas/{name}/schema").json()["version"] == 0
    assert http.get(f"/schemas/{name}-partition-2/schema").json()["version"] == 0
    producer.close()
    assert http.delete(f"/persistent/{name}/partitions?force=true").status_code == 204
    assert http.get(f"/schemas/{name}/schema").status_code == 404
    again = client.create_producer(f"persistent://{name}", schema=JsonSchema(Other))
    again.send(Other(z="x"))


def test_a_schema_posted_over_rest_is_what_clients_have_to_match(
    client: pulsar.Client, topic: str, http: httpx2.Client
) -> None:
    path = f"/schemas/{topic.removeprefix('persistent://')}/schema"
    text = json.dumps(First.schema(), indent=2)
    posted = http.post(path, json={"type": "JSON", "schema": text, "properties": {}})
    assert posted.json() == {"version": {"version": 0}}
    client.create_producer(topic, schema=JsonSchema(First)).send(First(a=1))
    refused(lambda: client.create_producer(topic, schema=JsonSchema(Other)))
    assert http.delete(path).json() == {"version": 1}
    client.create_producer(topic, schema=JsonSchema(Other)).send(Other(z="x"))
    assert http.get(path).json()["version"] == 2


def test_a_registered_schema_survives_kill_minus_nine(tmp_path: Path) -> None:
    topic = "persistent://public/default/kept"
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    with standalone(tmp_path) as server:
        client = pulsar.Client(server.url, operation_timeout_seconds=10, logger=logger)
        client.create_producer(topic, schema=JsonSchema(First)).send(First(a=1))
        server.kill()
        client.close()
    with standalone(tmp_path) as server:
        client = pulsar.Client(server.url, operation_timeout_seconds=10, logger=logger)
        refused(lambda: client.create_producer(topic, schema=JsonSchema(Other)))
        consumer = client.subscribe(
            topic, "s", schema=JsonSchema(First), initial_position=pulsar.InitialPosition.Earliest
        )
        assert consumer.receive(RECEIVE_MS).value().a == 1
        client.close()
