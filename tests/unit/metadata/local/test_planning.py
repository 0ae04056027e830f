"""quire.metadata.local.planning, by the store over it: writes of thousands of nodes, in steps of the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.metadata.errors import BadVersionError, MetadataError, NodeExistsError
from quire.metadata.local import planning
from quire.metadata.local.rocksdb import STEPWISE_MAX, KeyValueStore, open_store
from quire.metadata.store import ANY_VERSION, Check, Create, Delete, Op, Put
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.metadata.local.by_hand import ByHand

NODES = 2000


class Lane:
    """A lane whose jobs cost no step of the loop: the test runs them."""

    def __init__(self, job: Any, done: Any) -> None:
        self._job, self._done = job, done
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        self._items.append(item)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Run the job over the queue, and report in a step of its own."""
        items, self._items = self._items, []
        if items:
            result = self._job(items)
            async with trio.open_nursery() as loop:
                loop.start_soon(self._report, items, result)

    async def _report(self, items: list[Any], result: Any) -> None:
        self._done(items, result, None)


class Doors(ByHand):
    """Doors with such lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[Lane] = []

    def lane(self, name: str, job: Any, done: Any) -> Any:
        self.lanes.append(Lane(job, done))
        return self.lanes[-1]


@pytest.fixture
def doors() -> Doors:
    return Doors()


@pytest.fixture
async def store(doors: Doors) -> AsyncIterator[KeyValueStore]:
    store = await open_store(doors.world(), "/data")
    yield store
    await store.aclose()


async def outcomes(doors: Doors, store: KeyValueStore, *writes: Sequence[Op]) -> list[type[MetadataError] | None]:
    """Write all at one time; return the error of each, in the same order."""
    found: dict[int, type[MetadataError] | None] = {}

    async def write(number: int, ops: Sequence[Op]) -> None:
        try:
            await store.multi(ops)
            found[number] = None
        except MetadataError as error:
            found[number] = type(error)

    async with trio.open_nursery() as nursery:
        for number, ops in enumerate(writes):
            nursery.start_soon(write, number, ops)
        while len(found) < len(writes):
            await wait_all_tasks_blocked()
            for lane in doors.lanes:
                await lane.run()
    return [found[number] for number in range(len(writes))]


def nodes(count: int = NODES) -> list[Op]:
    return [Create(path=f"/logs/partition-{number}", make_parents=True) for number in range(count)]


async def test_a_write_of_thousands_of_nodes_holds_the_loop_in_no_step(doors: Doors, store: KeyValueStore) -> None:
    steps = Steps(trio.lowlevel.current_task(), real=False)
    trio.lowlevel.add_instrument(steps)
    try:
        assert await outcomes(doors, store, nodes()) == [None]
        assert await outcomes(doors, store, [Delete(path=op.path) for op in nodes()]) == [None]
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert 0 < steps.longest < CALLS_MAX, steps.where
    assert await outcomes(doors, store, [Delete(path="/logs")]) == [None], "no child is left"


@pytest.mark.parametrize(
    ("first", "other", "error"),
    [
        (Put(path="/a", value=b"1", version=0), Put(path="/a", value=b"2", version=0), BadVersionError),
        (Check(path="/a", version=0), Put(path="/a", value=b"2", version=0), BadVersionError),
        (Delete(path="/a", version=0), Put(path="/a", value=b"2", version=ANY_VERSION), BadVersionError),
        (Create(path="/b"), Create(path="/b"), NodeExistsError),
    ],
)
async def test_what_others_write_between_the_steps_counts(
    doors: Doors,
    store: KeyValueStore,
    monkeypatch: pytest.MonkeyPatch,
    first: Op,
    other: Op,
    error: type[MetadataError],
) -> None:
    assert await outcomes(doors, store, [Create(path="/a"), Create(path="/logs")]) == [None]
    monkeypatch.setattr(planning, "OPS_IN_STEP", 1)
    assert await outcomes(doors, store, [first, *nodes(3)], [other]) == [error, None]
    assert await store.children("/logs") == []


async def test_a_write_that_others_always_disturb_is_made_in_the_end(
    doors: Doors, store: KeyValueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each creation of a sibling changes the node of the parent, from which thousands of creations began."""
    assert await outcomes(doors, store, [Create(path="/logs")]) == [None]
    monkeypatch.setattr(planning, "OPS_IN_STEP", 1)
    disturbed = 0

    async def disturb() -> None:
        nonlocal disturbed
        while True:
            for each in store._plans:
                each.disturbed.add("/logs")
                disturbed += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(disturb)
        with trio.fail_after(60):
            task = trio.Event()

            async def write() -> None:
                await store.multi(nodes(5))
                task.set()

            nursery.start_soon(write)
            while not task.is_set():
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
                for lane in doors.lanes:
                    await lane.run()
        nursery.cancel_scope.cancel()
    assert disturbed >= STEPWISE_MAX
    assert len(await store.children("/logs")) == 5
