"""Access modes of producers, and deduplication, by the official client."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pulsar
import pytest

from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until

ALONE = pulsar.ProducerAccessMode.Exclusive
FENCING = pulsar.ProducerAccessMode.ExclusiveWithFencing
WAITING = pulsar.ProducerAccessMode.WaitForExclusive
RECEIVE_MS = 10_000
_numbers = itertools.count()


@pytest.fixture
def http(server: StandaloneProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{server.web}/admin/v2", timeout=20) as made:
        yield made


@pytest.fixture
def other(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    """A client with a connection of its own."""
    made = pulsar.Client(
        server.url, operation_timeout_seconds=10, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    yield made
    made.close()


@pytest.fixture
def once(http: httpx2.Client) -> str:
    """A topic of a namespace with deduplication."""
    namespace = f"public/once{next(_numbers)}"
    do(http, "PUT", f"/namespaces/{namespace}")
    do(http, "POST", f"/namespaces/{namespace}/deduplication", json=True)
    return f"persistent://{namespace}/t"


def do(http: httpx2.Client, method: str, path: str, **options: Any) -> None:
    response = http.request(method, path, **options)
    assert response.status_code == 204, response.text


def unload(http: httpx2.Client, topic: str) -> None:
    do(http, "PUT", f"/persistent/{topic.removeprefix('persistent://')}/unload")


def producer(client: pulsar.Client, topic: str, mode: pulsar.ProducerAccessMode, **options: Any) -> pulsar.Producer:
    return client.create_producer(topic, access_mode=mode, send_timeout_millis=10_000, **options)


class Later:
    """A producer that is being created, in a thread."""

    def __init__(self, client: pulsar.Client, topic: str, mode: pulsar.ProducerAccessMode, **options: Any) -> None:
        self.producer: pulsar.Producer | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(client, topic, mode), kwargs=options, daemon=True)
        self._thread.start()

    def _run(self, *args: Any, **options: Any) -> None:
        try:
            self.producer = producer(*args, **options)
        except BaseException as error:
            self.error = error

    def made(self) -> pulsar.Producer:
        self._thread.join(20)
        assert self.producer is not None, self.error
        return self.producer


def messages(client: pulsar.Client, topic: str, last: bytes) -> list[bytes]:
    """Return what the topic has, up to the message `last`."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: list[bytes] = []
    while last not in found:
        found.append(reader.read_next(RECEIVE_MS).data())
    assert not reader.has_message_available()
    reader.close()
    return found


def test_exclusive_producers_exclude_fence_and_follow_each_other(
    client: pulsar.Client, other: pulsar.Client, topic: str
) -> None:
    first = producer(client, topic, ALONE, producer_name="first")
    refuses(pulsar.ProducerFenced, lambda: producer(other, topic, ALONE))
    refuses(pulsar.ProducerBusy, lambda: other.create_producer(topic))
    first.send(b"1")
    third = producer(other, topic, FENCING)
    third.send(b"3")
    refuses(pulsar.ProducerFenced, lambda: first.send(b"fenced"))
    third.close()
    assert messages(client, topic, b"3") == [b"1", b"3"]


def test_producers_wait_for_their_turn(client: pulsar.Client, other: pulsar.Client, topic: str) -> None:
    first = producer(client, topic, WAITING)
    first.send(b"1")
    second = Later(other, topic, WAITING)
    first.send(b"2")  # whether the second one has come or not
    first.close()
    made = second.made()
    made.send(b"3")
    third = Later(client, topic, WAITING)
    made.close()
    third.made().send(b"4")
    assert messages(client, topic, b"4") == [b"1", b"2", b"3", b"4"]


def test_an_exclusive_producer_keeps_its_topic_over_an_unload(
    client: pulsar.Client, topic: str, http: httpx2.Client
) -> None:
    for mode in (ALONE, WAITING, FENCING):
        mine = producer(client, topic, mode)
        mine.send(b"1")
        unload(http, topic)
        mine.send(b"2")
        mine.close()


def test_a_producer_that_was_followed_while_it_was_away_is_fenced(
    client: pulsar.Client, other: pulsar.Client, topic: str, http: httpx2.Client
) -> None:
    mine = producer(client, topic, ALONE)
    mine.send(b"1")
    theirs = producer(other, topic, FENCING)
    theirs.send(b"2")
    refuses(pulsar.ProducerFenced, lambda: mine.send(b"3"))
    unload(http, topic)
    theirs.send(b"4")


def test_duplicates_are_dropped_by_sequence_id_and_producer_name(
    client: pulsar.Client, other: pulsar.Client, once: str, http: httpx2.Client
) -> None:
    mine = client.create_producer(once, "mine", batching_enabled=False)
    assert mine.last_sequence_id() == -1
    for sequence_id in (0, 1, 1, 0, 2):
        mine.send(b"%d" % sequence_id, sequence_id=sequence_id)
    mine.close()
    again = other.create_producer(once, "mine", batching_enabled=False)
    assert again.last_sequence_id() == 2
    unload(http, once)
    for sequence_id in (1, 2, 3):
        again.send(b"%d" % sequence_id, sequence_id=sequence_id)
    again.close()
    third = client.create_producer(once, "mine", batching_enabled=False)
    assert third.last_sequence_id() == 3
    third.send(b"end")  # the client counts on
    assert messages(client, once, b"end") == [b"0", b"1", b"2", b"3", b"end"]


def test_duplicates_of_batches_and_of_chunked_messages_are_dropped(client: pulsar.Client, once: str) -> None:
    mine = client.create_producer(once, "mine", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for _ in range(2):  # the same batch of ten; this client takes 0 for no sequence id
        for sequence_id in range(1, 11):
            mine.send_async(b"%d" % sequence_id, None, sequence_id=sequence_id)
        mine.flush()
    mine.close()
    large = bytes(12 << 20)
    chunking = client.create_producer(once, "mine", chunking_enabled=True, batching_enabled=False)
    assert chunking.last_sequence_id() == 1  # of a batch this client names the lowest id only
    for _ in range(2):
        chunking.send(large, sequence_id=11)
    chunking.send(b"end", sequence_id=12)
    chunking.close()
    assert messages(client, once, b"end") == [*[b"%d" % number for number in range(1, 11)], large, b"end"]


def test_deduplication_is_switched_by_namespace_and_topic(
    client: pulsar.Client, topic: str, http: httpx2.Client
) -> None:
    path = f"/persistent/{topic.removeprefix('persistent://')}"
    mine = client.create_producer(topic, "mine", batching_enabled=False)
    applied = f"{path}/deduplicationEnabled?applied=true"
    assert http.get(applied).json() is False
    assert http.get(f"{path}/deduplicationEnabled").status_code == 200
    do(http, "POST", f"{path}/deduplicationEnabled", json=True)
    assert http.get(applied).json() is True
    wait_until(lambda: "pulsar.dedup" in http.get(f"{path}/internalStats").json()["cursors"])
    for _ in range(2):
        mine.send(b"once", sequence_id=5)
    do(http, "DELETE", f"{path}/deduplicationEnabled")
    wait_until(lambda: "pulsar.dedup" not in http.get(f"{path}/internalStats").json()["cursors"])
    for _ in range(2):
        mine.send(b"twice", sequence_id=5)
    mine.send(b"end", sequence_id=6)
    assert messages(client, topic, b"end") == [b"once", b"twice", b"twice", b"end"]
    assert http.post(f"{path}/deduplicationEnabled", json="yes").status_code == 412
    do(http, "POST", f"{path}/deduplicationSnapshotInterval", json=30)
    assert http.get(f"{path}/deduplicationSnapshotInterval?applied=true").json() == 30
