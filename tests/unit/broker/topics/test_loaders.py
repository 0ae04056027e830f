"""The tasks that load topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import trio
from trio.testing import wait_all_tasks_blocked

from broker.context import Context
from broker.topics.loading import Loaders, Loading
from quire.wire.pulsar.names import TopicName


def named(number: int) -> TopicName:
    return TopicName.parse(f"persistent://public/default/t-{number}")


class Load:
    """A load that waits for topics with an event, and notes which task did it under which name."""

    def __init__(self) -> None:
        self.waits: dict[int, trio.Event] = {}
        self.begun: list[tuple[int, str]] = []
        self.ended: list[int] = []
        self.tasks: set[int] = set()

    async def __call__(self, name: TopicName, loading: Loading) -> None:
        number, task = int(name.local[2:]), trio.lowlevel.current_task()
        self.begun.append((number, task.name))
        self.tasks.add(id(task))
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            if number in self.waits:
                await self.waits[number].wait()
        finally:
            self.ended.append(number)


def loaders(nursery: trio.Nursery, load: Load) -> Loaders:
    return Loaders(cast("Context", SimpleNamespace(nursery=nursery)), load)


async def test_topics_that_are_loaded_from_memory_are_loaded_in_order_by_one_task() -> None:
    load = Load()
    async with trio.open_nursery() as nursery:
        queue = loaders(nursery, load)
        for number in range(100):
            queue.put(named(number), Loading(create=True))
        assert len(nursery.child_tasks) == 1
        await wait_all_tasks_blocked()
        assert load.begun == [(number, f"load {named(number).full}") for number in range(100)]
        assert len(load.tasks) == 1
        queue.put(named(100), Loading(create=True))
        await wait_all_tasks_blocked()
        assert load.ended[-1] == 100
        assert not nursery.child_tasks


async def test_topics_that_have_to_wait_hold_up_no_other() -> None:
    load = Load()
    load.waits = {number: trio.Event() for number in range(0, 100, 2)}
    async with trio.open_nursery() as nursery:
        queue = loaders(nursery, load)
        for number in range(100):
            queue.put(named(number), Loading(create=True))
        await wait_all_tasks_blocked()
        assert [number for number, _ in load.begun] == [*range(100)]
        assert load.ended == [*range(1, 100, 2)]
        queue.put(named(101), Loading(create=True))
        await wait_all_tasks_blocked()
        assert load.ended[-1] == 101, "one that comes while all tasks wait"
        for event in load.waits.values():
            event.set()


async def test_of_a_broker_that_ends_each_topic_that_was_asked_for_comes_to_its_end() -> None:
    load = Load()
    load.waits = {number: trio.Event() for number in range(3)}
    async with trio.open_nursery() as nursery:
        queue = loaders(nursery, load)
        for number in range(3):
            queue.put(named(number), Loading(create=True))
        await wait_all_tasks_blocked()
        for number in range(3, 10):
            queue.put(named(number), Loading(create=True))
        nursery.cancel_scope.cancel()
    assert sorted(load.ended) == [*range(10)]
