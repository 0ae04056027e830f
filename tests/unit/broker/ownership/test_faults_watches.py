"""Brokers that receive no watch events. docs/faults.md has the list."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.ownership.bundles import even
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import NAMESPACE, TOPIC, Cluster, Host

BUNDLE = even(NAMESPACE, 4).find(TOPIC)
ROW_S = 30.0
"""Delay that docs/faults.md allows."""


class Silent:
    """A watch without events."""

    async def next(self) -> Any:
        await trio.sleep_forever()

    def close(self) -> None:
        pass


def deafen(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suppress all watch events of a broker from now on; it only has what it reads itself."""
    monkeypatch.setattr(host.metadata, "watch", lambda *_, **__: Silent())


async def start_deaf(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = cluster.add(name)
    deafen(host, monkeypatch)
    await cluster.nursery.start(host.run)
    return host


async def test_m8_an_owner_that_was_not_told_of_its_loss_sees_it_within_half_a_minute_and_loads_nothing_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await start_deaf(cluster, "a", monkeypatch)
    await until(lambda: a.ownership.brokers.is_leader)
    b = await cluster.start("b")
    assert (await a.lookup(authoritative=True)).mine
    await cluster.store.delete(BUNDLE.path)
    # (a creates it again if it reads first.)
    assert (await b.lookup(authoritative=True)).mine
    taken_at = trio.current_time()
    assert a.ownership.owns(TOPIC), "it cannot know"
    await until(lambda: a.lost == [BUNDLE], within=ROW_S + 1.0)
    assert trio.current_time() - taken_at <= ROW_S + 1.0
    assert not a.ownership.owns(TOPIC)
    assert (await a.lookup()).broker_url == b.me.broker_url


async def test_m8_a_broker_that_was_not_told_of_a_new_owner_answers_with_it_within_half_a_minute(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await cluster.start_many("a", "b")
    deaf = await start_deaf(cluster, "deaf", monkeypatch)
    assert (await a.lookup(authoritative=True)).mine
    assert (await deaf.lookup()).broker_url == a.me.broker_url
    await a.ownership.unload(BUNDLE)
    assert (await b.lookup(authoritative=True)).mine
    moved_at = trio.current_time()
    while (await deaf.lookup()).broker_url != b.me.broker_url:
        assert trio.current_time() - moved_at <= ROW_S + 1.0
        await trio.sleep(0.5)


async def test_m8_a_broker_that_was_not_told_that_the_leader_is_gone_finds_out_within_half_a_minute(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await cluster.start("a")
    await until(lambda: a.ownership.brokers.is_leader)
    deaf = await start_deaf(cluster, "deaf", monkeypatch)
    assert not deaf.ownership.brokers.is_leader
    a.kill()
    await until(lambda: deaf.ownership.brokers.is_leader, within=ROW_S + 5.0)
