"""Threads that read ranges ahead: order, bound, errors, and the end of a read that is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from quire.tables.reading_ahead import ReadingAhead

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Batch:
    """A batch of 10 bytes."""

    number: int
    nbytes: int = 10


class Source:
    """Ranges of three batches each; counts what is read and not yet taken."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.read_batches = 0
        self.taken = 0
        self.most_ahead = 0
        self.closed = 0

    def read(self, number: int) -> Iterator[Batch]:
        try:
            for each in range(3):
                with self.lock:
                    self.read_batches += 1
                    self.most_ahead = max(self.most_ahead, self.read_batches - self.taken)
                    self.lock.notify_all()
                yield Batch(3 * number + each)
        finally:
            with self.lock:
                self.closed += 1
                self.lock.notify_all()

    def take(self) -> None:
        with self.lock:
            self.taken += 1

    def wait(self, read: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: self.read_batches >= read, DEADLINE_S)


def test_batches_come_in_the_order_of_the_ranges() -> None:
    source = Source()
    reading = ReadingAhead(range(50), source.read, parallel=4, buffer_bytes=1000)
    assert [batch.number for batch in reading.batches()] == list(range(150))


def test_no_range_gives_nothing() -> None:
    assert list(ReadingAhead([], Source().read, parallel=4, buffer_bytes=1000).batches()) == []


def test_ranges_are_read_at_the_same_time() -> None:
    together = threading.Barrier(4)

    def read(number: int) -> Iterator[Batch]:
        together.wait(DEADLINE_S)
        yield Batch(number)

    reading = ReadingAhead(range(4), read, parallel=4, buffer_bytes=1000)
    assert [batch.number for batch in reading.batches()] == [0, 1, 2, 3]


def test_no_more_is_read_ahead_than_the_buffer_holds() -> None:
    source = Source()
    # Each of two threads has a share of 10 bytes, which is one batch, and has one more in its hand.
    batches = ReadingAhead(range(20), source.read, parallel=2, buffer_bytes=20).batches()
    for number in range(60):
        assert next(batches).number == number
        source.wait(min(number + 1, 60))
        source.take()
    assert source.most_ahead <= 5  # (the one that is being taken, and two of each thread)


def test_no_more_ranges_are_begun_than_threads() -> None:
    begun = threading.Semaphore(0)
    numbers: list[int] = []

    def read(number: int) -> Iterator[Batch]:
        numbers.append(number)
        begun.release()
        yield Batch(number)

    batches = ReadingAhead(range(20), read, parallel=3, buffer_bytes=1000).batches()
    next(batches)
    for _ in range(3):
        assert begun.acquire(timeout=DEADLINE_S)
    assert sorted(numbers) == [0, 1, 2]
    assert [batch.number for batch in batches] == list(range(1, 20))


def test_an_error_comes_behind_the_batches_before_it() -> None:
    def read(number: int) -> Iterator[Batch]:
        yield Batch(number)
        if number == 1:
            raise ValueError("planted")

    batches = ReadingAhead(range(5), read, parallel=4, buffer_bytes=1000).batches()
    assert [next(batches).number, next(batches).number] == [0, 1]
    with pytest.raises(ValueError, match="planted"):
        next(batches)


def test_a_read_that_is_left_ends_its_threads_and_closes_its_ranges() -> None:
    source = Source()
    batches = ReadingAhead(range(20), source.read, parallel=2, buffer_bytes=10).batches()
    next(batches)
    source.wait(4)
    batches.close()
    with source.lock:
        assert source.lock.wait_for(lambda: source.closed == 2, DEADLINE_S)
    assert source.read_batches < 8
