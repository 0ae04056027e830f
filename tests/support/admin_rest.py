"""The admin REST of a server under test, beside the official client."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import httpx2
import pulsar
from pulsar import MessageId

from tests.support.server import StandaloneProcess
from tests.support.waiting import wait_until


class Admin:
    """The REST API of a server, one method per verb; paths are relative to a topic."""

    def __init__(self, server: StandaloneProcess) -> None:
        self.http = httpx2.Client(base_url=server.web, timeout=20)

    def ask(self, method: str, topic: str, resource: str = "", **options: Any) -> httpx2.Response:
        local = quote(topic.removeprefix("persistent://public/default/"), safe="")
        return self.http.request(method, f"/admin/v2/persistent/public/default/{local}{resource}", **options)

    def get(self, topic: str, resource: str) -> Any:
        response = self.ask("GET", topic, resource)
        assert response.status_code == 200, response.text
        return response.json()

    def do(self, method: str, topic: str, resource: str = "", **options: Any) -> None:
        response = self.ask(method, topic, resource, **options)
        assert (response.status_code, response.content) == (204, b""), response.text


def wait_for_the_next_millisecond() -> None:
    """Wait for the next millisecond of the wall clock, which dates producers' messages."""
    before = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > before)


def publish(client: pulsar.Client, topic: str, count: int) -> list[MessageId]:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"m%d" % number) for number in range(count)]
    producer.close()
    return ids


def as_json(message_id: MessageId) -> dict[str, int]:
    """Return the JSON of the whole entry."""
    entry = {"ledgerId": message_id.ledger_id(), "entryId": message_id.entry_id(), "partitionIndex": -1}
    return {**entry, "batchIndex": -1, "batchSize": 0}
