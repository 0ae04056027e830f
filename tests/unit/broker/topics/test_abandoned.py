"""Restorations that were given up, of topics that no broker has (`broker.topics.life.abandoned`). Those of this broker
are tested in tests/unit/broker/admin/test_restored_topics.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from broker.config import BrokerOptions
from broker.errors import ServiceNotReadyError
from broker.ownership.lookup import Connect, Redirect
from broker.topics.life.abandoned import SWEEP_S, AbandonedRestorations
from broker.topics.life.restorations import Restoration
from quire.wire.pulsar.names import TopicName

NAME = TopicName.parse("persistent://public/default/a b")
URL = "http://chosen:8080"


class Parts:
    """The list, the ownership, the loaded topics and the other brokers. A topic of this broker is not loaded here."""

    def __init__(self, found: Connect | Redirect | Exception) -> None:
        self.found = found
        self.said: list[str] = []

    async def all(self) -> list[Restoration]:
        await trio.lowlevel.checkpoint()
        return [Restoration(NAME, "b", 0, 0)]

    async def unfinished(self, name: TopicName) -> tuple[list[TopicName], bool]:
        await trio.lowlevel.checkpoint()
        return [name], False

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect:
        assert not authoritative
        await trio.lowlevel.checkpoint()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def find(self, name: TopicName) -> None:
        return None

    def url_of(self, broker: Any) -> str:
        return str(broker.web_url)

    async def call(self, web_url: str, method: str, path: str) -> object:
        await trio.lowlevel.checkpoint()
        self.said.append(f"{method} {web_url}{path}")
        return {}

    def checks(self) -> AbandonedRestorations:
        """Return checks a day and some seconds after the restoration was touched."""
        here: Any = self
        nothing: Any = SimpleNamespace()
        return AbandonedRestorations(
            here,
            here,
            here,
            nothing,
            BrokerOptions(),
            lambda: 86_500_000,
            delete_partitioned=nothing,
            others=lambda: here,
        )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            Redirect("", URL, authoritative=True),
            ["GET http://chosen:8080/lookup/v2/topic/persistent/public/default/a%20b?authoritative=true"],
        ),
        (Redirect("", URL, authoritative=False), []),
        (Connect("", URL, mine=False), []),
        (ServiceNotReadyError("away"), []),
    ],
)
async def test_the_leader_has_a_topic_taken_that_no_broker_has(found: Any, said: list[str]) -> None:
    parts = Parts(found)
    checks = parts.checks()
    await checks.sweep()
    assert parts.said == [], "not at the start"
    await trio.sleep(SWEEP_S)
    await checks.sweep()
    assert parts.said == said
    await checks.sweep()
    assert parts.said == said, "not again at once"
    await trio.sleep(SWEEP_S)
    await checks.sweep()
    assert parts.said == said * 2
