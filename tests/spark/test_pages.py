"""docs/spark.md and the runbooks of Spark: their commands, typed as they stand, after the trouble was planted.

With `--full` only: each page starts Spark two to six times.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Double, Integer, Record, String

from tests.spark.exact import make_deduplicated
from tests.spark.peer import quiet_client
from tests.spark.support import make_partitions
from tests.support.pages.walk import ROOT, Walk
from tests.support.server import StandaloneProcess, free_port, standalone

pytestmark = pytest.mark.full

Open = Callable[[str], Walk]


class Order(Record):  # type: ignore[misc]
    id = Integer()
    name = String()


class Item(Record):  # type: ignore[misc]
    name = String()
    price = Double()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path / "server") as running:
        yield running


@pytest.fixture
def client(server: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = quiet_client(server.url)
    yield made
    made.close()


@pytest.fixture
def open_page(server: StandaloneProcess, tmp_path: Path) -> Open:
    def opened(page: str) -> Walk:
        # the programs of a page have no addresses: a user's server has the usual ports
        given = {"service.url": server.url, "admin.url": server.web}
        source = 'format("quire")'
        there = source in (ROOT / "docs/runbooks" / page).read_text()
        names = {source: f"{source}.options(**{given})"} if there else {}
        return Walk(f"runbooks/{page}", tmp_path / "walk", names, web=server.web, service=server.url)

    return opened


def publish(client: pulsar.Client, topic: str, numbers: Iterable[int]) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in numbers:
        producer.send_async(b"order-%d" % number, None, partition_key=f"customer-{number % 7}")
    producer.flush()
    producer.close()


def send(client: pulsar.Client, topic: str, schema: Any, *values: Any) -> None:
    producer = client.create_producer(topic, **({"schema": schema} if schema is not None else {}))
    for value in values:
        producer.send(value)
    producer.close()


def test_the_walk_through(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    url, web = f"pulsar://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
    given = {"service.url": url, "admin.url": web}
    names = {
        "--port 6650 --web-port 8080": f"--port {ports[0]} --web-port {ports[1]} --bind-address 127.0.0.1",
        "pulsar://127.0.0.1:6650": url,
        'format("quire")': f'format("quire").options(**{given})',
    }
    with Walk("spark.md", tmp_path / "walk", names, web=web, service=url, wait_s=120.0) as page:
        page.section("Five minutes")
        page.section("Values by schema")


def test_a_checkpoint_is_lost(client: pulsar.Client, open_page: Open, tmp_path: Path) -> None:
    with open_page("spark-checkpoint-lost.md") as page:
        publish(client, "orders", range(100))
        page.plant("quire pipeline archive --topic orders --out orders-archive --checkpoint checkpoint")
        shutil.rmtree(page.folder / "checkpoint")
        publish(client, "orders", range(100, 150))
        for section in ("See it", "Stop what would delete the data", "Continue the archive", "Check"):
            page.section(section)


def test_a_poisoned_message(client: pulsar.Client, open_page: Open) -> None:
    client.subscribe("orders", "report").close()
    send(client, "orders", AvroSchema(Order), Order(id=1, name="one"))
    send(client, "orders", None, b"not an order")
    send(client, "orders", AvroSchema(Order), Order(id=2, name="two"))
    with open_page("spark-poisoned-message.md") as page:
        for section in ("A poisoned message stops a stream", "See it", "Put it aside", "End it", "Check"):
            page.section(section)


def test_a_schema_changes(client: pulsar.Client, open_page: Open) -> None:
    client.subscribe("items", "items").close()
    send(client, "items", AvroSchema(Item), Item(name="pen", price=1.5))
    with open_page("spark-schema-change.md") as page:
        sections = (
            "The schema of a topic changes under a stream",
            "Before: is the new version compatible?",
            "The change",
            "Check",
        )
        for section in sections:
            page.section(section)


def test_partitions_grow(server: StandaloneProcess, client: pulsar.Client, open_page: Open) -> None:
    make_deduplicated(server)
    for topic in ("persistent://public/default/orders", "persistent://public/exact/copy"):
        make_partitions(server, topic, 2)
    with open_page("spark-partitions-grow.md") as page:
        publish(client, "orders", range(40))
        page.plant("quire pipeline archive --topic orders --out orders-archive --checkpoint orders-checkpoint")
        page.next()
        publish(client, "orders", range(40, 120))
        page.section("Grow the topic")
        page.section("A copy by partition")
        page.section("Check")


def test_a_backfill(client: pulsar.Client, open_page: Open) -> None:
    client.subscribe("orders", "archive-orders-archive").close()
    publish(client, "orders", range(100))
    with open_page("spark-backfill.md") as page:
        page.plant("quire pipeline archive --topic orders --out orders-archive --checkpoint orders-checkpoint")
        publish(client, "orders", range(100, 120))
        for section in ("Where the archive ends", "The history", "Live", "Check"):
            page.section(section)
