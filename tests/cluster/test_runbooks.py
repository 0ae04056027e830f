"""Runbooks of one server: the trouble is planted, and the page's own commands find it and end it."""

from __future__ import annotations

import datetime
import operator
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pulsar
import pytest

from tests.support import web
from tests.support.certificates import Authority
from tests.support.pages.walk import Walk
from tests.support.process import wait_until
from tests.support.server import StandaloneProcess, free_port, standalone

pytestmark = pytest.mark.cluster


def walk(page: str, server: StandaloneProcess, folder: Path, names: dict[str, object] | None = None) -> Walk:
    return Walk(page, folder / "walk", names or {}, web=server.web, service=server.url)


@contextmanager
def client_of(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def publish(client: pulsar.Client, count: int, topic: str = "orders") -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(count):
        producer.send_async(b"order-%d" % number, None)
    producer.flush()
    producer.close()


def backlog(server: StandaloneProcess) -> float:
    return server.metric("pulsar_subscription_back_log")


class Worker:
    """An application that, once it has got the poisoned message, acknowledges nothing until its deliveries begin again
    without it."""

    def __init__(self, client: pulsar.Client, *, poison: int | None) -> None:
        self._poison = poison
        self._stop = threading.Event()
        self.seen: list[int] = []
        self._consumer = client.subscribe(
            "orders",
            "audit",
            pulsar.ConsumerType.Shared,
            consumer_name="worker-1",
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=5,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        stuck = False
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(200)
            except pulsar.Timeout:
                continue
            number = int(message.data().removeprefix(b"order-"))
            begins_again = bool(self.seen) and number <= self.seen[-1]
            self.seen.append(number)
            stuck = number == self._poison or (stuck and not begins_again)
            if not stuck:
                self._consumer.acknowledge(message)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_consumer_that_stands_still(tmp_path: Path) -> None:
    with (
        standalone(tmp_path, {"maxUnackedMessagesPerConsumer": 10}) as server,
        client_of(server) as client,
        ExitStack() as stack,
    ):
        worker = stack.enter_context(Worker(client, poison=0))
        publish(client, 30)
        wait_until(lambda: len(worker.seen) >= 10, "the worker has all that it may hold")
        with walk("runbooks/consumer-stands-still.md", server, tmp_path) as page:
            page.section("Find the cause")
            page.section("Get the messages moving")
            assert b"order-0" in (tmp_path / "walk/poison.txt").read_bytes()
            page.section("Check")
        assert backlog(server) == 0
        assert set(worker.seen) == set(range(30))


def test_a_lag_that_grows(tmp_path: Path) -> None:
    with standalone(tmp_path) as server, client_of(server) as client, ExitStack() as stack:
        publish(client, 1)
        rate = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
        url = f"{server.web}/admin/v2/persistent/public/default/orders/subscriptionDispatchRate"
        assert web.request("POST", url, json=rate).is_success
        stack.enter_context(Worker(client, poison=None))
        publish(client, 500)
        with walk("runbooks/lag-grows.md", server, tmp_path, {"http://127.0.0.1:8080": server.web}) as page:
            page.section("Measure it")
            page.section("Find what limits it")
            assert backlog(server) > 0
            page.section("Remove a rate")
            page.section("Protect the server")
            page.section("Check")
        assert backlog(server) == 0


def limit_files(server: StandaloneProcess, size: int) -> None:
    """Keep files of the server below `size` bytes: its writes to the journal then fail as on a full disk."""
    assert server.process is not None
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_a_full_disk(tmp_path: Path) -> None:
    with standalone(tmp_path) as server, client_of(server) as client:
        server.announced += ["journal group not written, refusing its adds", "no room", "checkpoint failed"]
        client.subscribe("orders", "audit").close()
        producer = client.create_producer("orders", batching_enabled=False)
        for _ in range(300):
            producer.send_async(bytes(4096), None)
        producer.flush()
        limit_files(server, 1 << 20)
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"no room")
        producer.close()
        names: dict[str, object] = {"http://127.0.0.1:8080": server.web, "/var/lib/quire": server.data}
        with walk("runbooks/disk-full.md", server, tmp_path, names) as page:
            page.section("See it")
            page.section("Find what keeps the space")
            page.section("Free space")
            assert backlog(server) == 0
            limit_files(server, resource.RLIM_INFINITY)
            page.section("Check")


def test_certificates_that_expire(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    authority.issue("localhost", "127.0.0.1", ends=soon)
    conf = {
        "brokerServicePortTls": (binary := free_port()),
        "webServicePortTls": (web_port := free_port()),
        "tlsCertificateFilePath": tmp_path / "server.cert.pem",
        "tlsKeyFilePath": tmp_path / "server.key.pem",
        "tlsCertRefreshCheckDurationSec": 0,
    }
    with standalone(tmp_path / "server", conf) as server:
        authority.issue("localhost", "127.0.0.1", file="new")
        names: dict[str, object] = {
            "broker1.example.org:6651": f"127.0.0.1:{binary}",
            "broker1.example.org:8443": f"127.0.0.1:{web_port}",
            "/etc/quire/tls": tmp_path,
        }
        with walk("runbooks/certificates-expire.md", server, tmp_path, names) as page:
            page.section("See it coming")
            first = page.section("Replace the certificate")
            assert first == ""
            sums = page.outputs[2].split()
            assert sums[0] == sums[2], "the pair belongs together"
            page.section("Check")
        assert "tls files changed, used for new connections" in server.log()


def test_a_topic_that_was_deleted_by_mistake(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        with client_of(server) as client:
            publish(client, 50, "other")
            producer = client.create_producer("orders", batching_enabled=True)
            for number in range(200):
                producer.send_async(
                    b"order-%d" % number, None, partition_key=f"k{number % 5}", event_timestamp=number + 1
                )
            producer.flush()
            before = everything(client)
            producer.close()
        answer = web.request("DELETE", f"{server.web}/admin/v2/persistent/public/default/orders?force=true")
        assert answer.is_success
        stands_for = tmp_path / "programs"
        stands_for.mkdir()
        for name, text in {
            "systemctl": f"#!/bin/sh\necho $1 >> {tmp_path}/asked\nwhile [ -s {tmp_path}/asked ]; do sleep 0.05; done\n"
        }.items():
            (stands_for / name).write_text(text)
            (stands_for / name).chmod(0o755)
        names: dict[str, object] = {
            "/var/lib/quire-salvage": tmp_path / "copy",
            "/var/lib/quire": server.data,
            "/var/log/quire/standalone.log": server.log_path,
        }
        service = threading.Thread(target=manage, args=(server, tmp_path / "asked"), daemon=True)
        service.start()
        page = Walk(
            "runbooks/topic-deleted.md",
            tmp_path / "walk",
            names,
            web=server.web,
            service=server.url,
            programs=stands_for,
        )
        with page:
            for section in ("At once", "Find its ledgers", "Get the messages", "Publish them again", "Check"):
                page.section(section)
        service.join()
        with client_of(server) as client:
            after = everything(client)
        by_key = operator.itemgetter(1)
        assert sorted(after, key=by_key) == sorted(before, key=by_key), "the order of each key is kept"


def manage(server: StandaloneProcess, asked: Path) -> None:
    """Stop and start the server once each, as a service manager does when it is asked to."""
    for verb in ("stop", "start"):
        wait_until(lambda: asked.exists() and bool(asked.read_text().strip()), f"it is asked to {verb}", 60)
        assert asked.read_text().strip() == verb
        server.stop() if verb == "stop" else server.start()
        asked.write_text("")


def everything(client: pulsar.Client) -> list[tuple[bytes, str, int]]:
    """Return all messages of the topic: value, key and event time."""
    reader = client.create_reader("orders", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.append((message.data(), message.partition_key(), message.event_timestamp()))
    reader.close()
    return found
