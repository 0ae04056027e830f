"""Covers quire/ledger/bookies/weights.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from quire.ledger.bookies import weights as module
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.bookies.weights import DiskWeights
from quire.ledger.errors import BookieUnavailableError
from quire.ledger.placement.policy import Cluster

ANSWER_S = 7.0


class Watcher:
    """Bookies that a test lists."""

    def __init__(self, *writable: str) -> None:
        self.changed = trio.Event()
        self._cluster = Cluster(writable=writable)

    def cluster(self) -> Cluster:
        return self._cluster

    def set_weights(self, weights: Mapping[str, int]) -> None:
        self.set(replace(self._cluster, weights=weights))

    def set(self, cluster: Cluster) -> None:
        self._cluster = cluster
        changed, self.changed = self.changed, trio.Event()
        changed.set()


class Rooms:
    """Free bytes of bookies; None: it does not answer, an error: it refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **free: int | None) -> None:
        self.free = free
        self.asked: list[tuple[float, str]] = []
        self._began = trio.current_time()
        monkeypatch.setattr(module, "ask_disk_space", self._ask)

    async def _ask(self, client: Any, bookie_id: str) -> tuple[int, int]:
        self.asked.append((round(trio.current_time() - self._began), bookie_id))
        free = self.free[bookie_id]
        if free is None:
            await trio.sleep_forever()
        if free < 0:
            raise BookieUnavailableError("no")
        return 1000, free


def weights_of(watcher: Watcher) -> DiskWeights:
    return DiskWeights(cast(BookieClient, None), watcher, interval_s=3600.0, retry_s=60.0, answer_s=ANSWER_S)


async def test_bookies_are_asked_at_once_and_again_at_the_interval(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    watcher, rooms = Watcher("a", "b"), Rooms(monkeypatch, a=5, b=9)
    nursery.start_soon(weights_of(watcher).run)
    await trio.sleep(1)
    assert watcher.cluster().weights == {"a": 5, "b": 9}
    rooms.free["a"] = 4
    await trio.sleep(3600)
    assert watcher.cluster().weights == {"a": 4, "b": 9}
    assert sorted(rooms.asked) == [(0, "a"), (0, "b"), (3600, "a"), (3600, "b")]


async def test_a_new_bookie_is_asked_when_it_comes_and_one_that_left_has_no_weight(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    watcher, rooms = Watcher("a", "b"), Rooms(monkeypatch, a=5, b=9, c=7)
    nursery.start_soon(weights_of(watcher).run)
    await trio.sleep(10)
    watcher.set(replace(watcher.cluster(), writable=("b", "c")))
    await trio.sleep(10)
    assert watcher.cluster().weights == {"b": 9, "c": 7}
    assert rooms.asked[2:] == [(10, "c")]


async def test_a_bookie_that_does_not_say_is_asked_again_sooner_and_keeps_its_weight(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    watcher, rooms = Watcher("a", "b", "c"), Rooms(monkeypatch, a=-1, b=None, c=7)
    nursery.start_soon(weights_of(watcher).run)
    await trio.sleep(ANSWER_S - 1)
    assert watcher.cluster().weights == {}
    await trio.sleep(2)
    assert watcher.cluster().weights == {"c": 7}
    rooms.free |= {"a": 3, "b": 4, "c": -1}
    await trio.sleep(75)
    assert watcher.cluster().weights == {"a": 3, "b": 4, "c": 7}
    await trio.sleep(3600)
    assert watcher.cluster().weights == {"a": 3, "b": 4, "c": 7}
    assert [at for at, bookie_id in rooms.asked if bookie_id == "c"] == [0, 3600, 3660]
    await wait_all_tasks_blocked()
