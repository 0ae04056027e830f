"""Doors of an embedded metadata store that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar

import trio

from quire.world.damage import Finding
from quire.world.doors import Batch, World

T = TypeVar("T")
Run = tuple[list[Any], Any, BaseException | None]


class ByHand:
    """Two doors in one: an offload whose lane runs on demand, and a map that fails on demand."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.batches: list[dict[bytes, bytes | None]] = []
        """All synced batches."""
        self.failure: BaseException | None = None
        self.applies_what_fails = False
        self.closed = False
        self.events: list[str] = []
        self._queue: list[Any] = []
        self._job: Any = None
        self._done: Any = None

    # offload

    async def run(self, job: Callable[[], T], *, name: str = "") -> T:
        await trio.lowlevel.checkpoint()
        return job()

    def lane(self, name: str, job: Any, done: Any) -> Any:
        if name == "metadata reads":
            return AtOnce(job, done)
        self._job, self._done = job, done
        return self

    def put(self, item: Any) -> None:
        self.events.append("write handed over")
        self._queue.append(item)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._queue:
            self.step()

    def work(self) -> Run:
        """Run the job over the queue, as a thread would; `report` tells the loop."""
        items, self._queue = self._queue, []
        assert items, "nothing is queued"
        try:
            return items, self._job(items), None
        except OSError as error:
            return items, None, error

    def report(self, run: Run) -> None:
        self._done(*run)

    def step(self) -> None:
        self.report(self.work())

    # key_value

    def open(self, path: str, **_: Any) -> ByHand:
        return self

    def make_dirs(self, path: str) -> None:
        pass

    noticed: tuple[Finding, ...] = ()

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def batch(self) -> Batch:
        return _Changes()

    def write(self, batch: Batch, *, sync: bool) -> None:
        assert isinstance(batch, _Changes)
        assert sync
        if self.failure is None or self.applies_what_fails:
            for key, value in batch.items():
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
        if self.failure is not None:
            raise self.failure
        self.batches.append(dict(batch))

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.rows.items() if start <= key < stop))

    def values(self, start: bytes, count_max: int) -> list[bytes]:
        raise AssertionError("not used")

    def prefixes(self, start: bytes, stop: bytes, length: int, count_max: int) -> list[bytes]:
        raise AssertionError("not used")

    def compact(self) -> None:
        raise AssertionError("not used")

    def close(self) -> None:
        self.closed = True

    def world(self) -> World:
        doors: Any = self
        return World(clock=doors, disk=doors, key_value=doors, network=doors, offload=doors, rng=Random(1))


class AtOnce:
    """A lane that does not wait."""

    def __init__(self, job: Any, done: Any) -> None:
        self._job = job
        self._done = done

    def put(self, item: Any) -> None:
        self._job([item])
        self._done([item], None, None)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _Changes(dict[bytes, bytes | None]):
    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def delete(self, key: bytes) -> None:
        self[key] = None

    def delete_range(self, start: bytes, stop: bytes) -> None:
        raise AssertionError("not used")
