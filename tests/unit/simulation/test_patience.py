"""Messages that have to come are not lost while faults excuse their absence. Covers simulation/life/patience.py."""

from __future__ import annotations

from collections import deque
from math import inf
from types import SimpleNamespace
from typing import Any

import trio

from quire.ledger.context import LedgerConfig
from simulation.common.nemesis import Nemesis
from simulation.life.part import Arriving
from simulation.life.patience import delivery_bound_s, read_bound_s
from simulation.machines.world import Universe

QUIET_S = 3.0


class Line:
    """A connection with a consumer to which messages come at given times, or never."""

    closed = False

    def __init__(self) -> None:
        self.messages: deque[tuple[int, Any]] = deque()
        self.dropped: set[int] = set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    async def bring(self, at: float) -> None:
        await trio.sleep_until(at)
        self.messages.append((1, "message"))
        self._changed.set()
        self._changed = trio.Event()


class Faults:
    """Faults that are undone at given times after now, from the first moment on."""

    def __init__(self, *undone_after: float) -> None:
        self._ends = [trio.current_time() + each for each in undone_after]
        self.calm_since = inf if undone_after else 0.0

    async def undo(self) -> None:
        for end in self._ends:
            await trio.sleep_until(end)
        self.calm_since = trio.current_time()


async def wait(line: Line, faults: Faults) -> tuple[list[Any], float]:
    """Return what came until a message counted as lost, and after how long that was."""
    begun = trio.current_time()
    connection: Any = line
    async with trio.open_nursery() as nursery:
        nursery.start_soon(faults.undo)
        found = [each async for each in Arriving(connection, QUIET_S, lambda: faults.calm_since)]
        nursery.cancel_scope.cancel()
    return found, trio.current_time() - begun


async def test_without_faults_a_message_is_lost_when_its_time_is_over() -> None:
    assert await wait(Line(), Faults()) == ([], QUIET_S)


async def test_no_message_is_lost_during_a_fault_however_long_that_takes() -> None:
    assert await wait(Line(), Faults(100.0)) == ([], 100.0 + QUIET_S)


async def test_a_message_that_comes_after_the_fault_is_found() -> None:
    line = Line()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.bring, begun + 52.0)
        found, took_s = await wait(line, Faults(50.0))
    assert (found, took_s) == (["message"], 52.0 + QUIET_S)


def test_the_reads_that_once_counted_as_lost_end_within_the_bound() -> None:
    """Times of living seeds 52000021 (two late answers of the metadata service), 52000098 (a late request)."""
    client = LedgerConfig(read_timeout_s=3, add_timeout_s=3)
    assert read_bound_s(client, copies=2, metadata_latency_max_s=0.5) > 0.1985 + 0.3811
    assert read_bound_s(client, copies=3, metadata_latency_max_s=0.05) > 1.5038


def test_the_bound_grows_with_each_setting() -> None:
    def bound(timeout_s: float = 1, copies: int = 1, latency_s: float = 0.05) -> float:
        client = LedgerConfig(read_timeout_s=timeout_s, add_timeout_s=timeout_s)
        return delivery_bound_s(read_bound_s(client, copies=copies, metadata_latency_max_s=latency_s))

    assert max(bound(), 15) < min(bound(timeout_s=3), bound(copies=2), bound(latency_s=0.5))


class Harms(Nemesis):
    """A nemesis with one fault, which takes as long as it says."""

    def __init__(self, story: Any, seconds: float) -> None:
        super().__init__(story)
        self._acts = {"wait": self._wait}
        self._seconds = seconds

    async def _wait(self) -> bool:
        self.note("wait")
        await trio.sleep(self._seconds)
        return True


async def test_it_is_calm_since_the_last_of_overlapping_faults_was_undone(universe: Universe) -> None:
    swarm = SimpleNamespace(faults=("wait",), overlap=3, calm_s=0.5)
    story = SimpleNamespace(universe=universe, swarm=swarm, tell=lambda *args, **fields: None)
    nemesis = Harms(story, 4.0)
    seen: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nemesis.run, 3)
        while nemesis.total < 3 or nemesis.calm_since == inf:
            await trio.sleep(0.25)
            seen.append(nemesis.calm_since)
    assert seen.count(inf) >= 16
    # The faults overlapped, so there was no calm between the first begin and the last end.
    assert seen[-1] > 4.0
    assert {each for each in seen if each != inf} <= {0.0, seen[-1]}
