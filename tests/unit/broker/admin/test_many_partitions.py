"""Calls about a topic with very many partitions: they are not asked one after the other, and their logs are named in
one short step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio

from broker.background import AT_ONCE_MAX
from broker.topics.partitioned_topics import PartitionedTopics
from broker.topics.topic import Topic
from managed_ledger.stored_list import log_path
from quire.metadata.store import MetadataStore, Op
from quire.wire.pulsar.names import TopicName
from tests.unit.broker.counted_steps import Steps
from tests.unit.broker.peers import Room
from tests.unit.broker.rest import rest_of

PATH = "/admin/v2/persistent/public/default/many"
PARTITIONS = 2000


async def test_statistics_ask_several_partitions_at_a_time(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    get, now, most = room.broker.topics.get, 0, 0

    async def slow(name: TopicName, **options: Any) -> Topic:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(1)
        now -= 1
        return await get(name, **options)

    monkeypatch.setattr(room.broker.topics, "get", slow)
    async with rest_of(room) as rest:
        assert await rest.status("PUT", f"{PATH}/partitions", json=3 * AT_ONCE_MAX) == 204
        for call in ("partitioned-stats", "partitioned-internalStats"):
            began, most = trio.current_time(), 0
            found = await rest.get(f"{PATH}/{call}")
            names = [f"persistent://public/default/many-partition-{index}" for index in range(3 * AT_ONCE_MAX)]
            assert list(found["partitions"]) == names
            assert most == AT_ONCE_MAX, call
            assert trio.current_time() - began == pytest.approx(3, abs=0.5), call


class NoStore:
    """Metadata without nodes, which keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Op] = []

    async def get(self, path: str) -> None:
        await trio.lowlevel.checkpoint()

    async def children(self, path: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        await trio.lowlevel.checkpoint()
        self.written += ops
        return []


async def test_the_logs_of_many_partitions_are_named_without_a_look_at_each_name() -> None:
    store, name = NoStore(), TopicName.parse("persistent://public/default/m\u00fc/n y-1")
    steps = Steps(trio.lowlevel.current_task(), real=False)
    topics = PartitionedTopics(cast("MetadataStore", store))
    async with trio.open_nursery() as nursery:
        trio.lowlevel.add_instrument(steps)
        nursery.start_soon(topics.create, name, PARTITIONS)
    trio.lowlevel.remove_instrument(steps)
    sys.setprofile(None)
    wanted = [log_path(name.with_partition(index).managed_ledger_path) for index in range(PARTITIONS)]
    assert [each.path for each in store.written[1:]] == wanted
    assert steps.longest <= 3 * PARTITIONS, f"{steps.longest:.0f} calls in one step of {steps.where}"
