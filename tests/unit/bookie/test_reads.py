"""Readers: every read is answered once, and batches stay within their bounds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from bookie.directories.beside_adds import RECENT_S, AddsUnderWay, workers_beside_adds
from bookie.errors import LedgerInLimboError, NoEntryError, NoLedgerError, StorageDamagedError
from bookie.journal.writer import Journal
from bookie.reads import SHARE, ReadWorkers
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines.world import in_world

pytestmark = pytest.mark.seeded


class Answers:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._news = trio.Event()

    def __call__(self, result: Any, rc: Rc) -> None:
        self.seen.append(result if rc is Rc.OK else rc)

    def after(self) -> None:
        self.seen.append("after")
        self._news.set()

    async def wait(self, count: int) -> None:
        with trio.fail_after(60):
            while len([one for one in self.seen if one != "after"]) < count:
                self._news = trio.Event()
                await self._news.wait()


class Sectors:
    """Fake count of the sectors that a worker's thread has read from disk.

    It grows by `per_batch` for each batch; None if the system does not count.
    """

    def __init__(self, per_batch: int | None = None) -> None:
        self.per_batch = per_batch
        self._sum = 0
        self._begun = False

    def __call__(self) -> int | None:
        if self.per_batch is None:
            return None
        self._sum += self.per_batch if self._begun else 0
        self._begun = not self._begun
        return self._sum


@asynccontextmanager
async def with_workers(
    *, workers: int = 2, waiting_max: int = 1000, sectors: Sectors | None = None
) -> AsyncIterator[tuple[ReadWorkers, Answers]]:
    async with in_world(1) as world:
        answers = Answers()
        made = ReadWorkers(
            world.offload,
            name="r",
            workers=workers,
            waiting_max=waiting_max,
            after=answers.after,
            sectors_read=sectors or Sectors(),
        )
        yield made, answers
        await made.aclose()


async def test_what_gathers_is_answered_in_one_pass_and_in_order() -> None:
    async with with_workers() as (workers, answers):
        for number in range(SHARE):
            assert workers.submit(partial(int, number), answers)
        await answers.wait(SHARE)
        assert [one for one in answers.seen if one != "after"] == list(range(SHARE))
        assert answers.seen.count("after") <= 2
        assert answers.seen[-1] == "after"
        assert workers.waiting == 0


async def test_more_than_one_can_share_wakes_the_others_up_to_their_number() -> None:
    async with with_workers() as (workers, answers):
        for _ in range(3 * SHARE):
            workers.submit(lambda: 1, answers)
        assert workers._loads == [SHARE + SHARE // 2, SHARE + SHARE // 2]
        await answers.wait(3 * SHARE)
        assert workers._loads == [0, 0]


async def test_one_worker_serves_all_while_nothing_has_to_come_from_a_disk() -> None:
    sectors = Sectors(0)

    async def flood(workers: ReadWorkers, answers: Answers) -> list[int]:
        before = len(answers.seen) - answers.seen.count("after")
        for _ in range(4 * SHARE):
            workers.submit(lambda: 1, answers)
        loads = list(workers._loads)
        await answers.wait(before + 4 * SHARE)
        return loads

    async def story(workers: ReadWorkers, answers: Answers) -> None:
        assert min(await flood(workers, answers)) > 0, "nothing is known yet: all are asked"
        assert await flood(workers, answers) == [4 * SHARE, 0]
        sectors.per_batch = 4 * SHARE * 16  # each read waits for a page of the index and one of the log
        assert await flood(workers, answers) == [4 * SHARE, 0], "only this shows that they do"
        assert min(await flood(workers, answers)) > 0
        sectors.per_batch = 8  # one page from time to time
        for _ in range(8):
            loads = await flood(workers, answers)
        assert loads == [4 * SHARE, 0]

    async with with_workers(sectors=sectors) as (workers, answers):
        await story(workers, answers)


async def test_above_the_bound_a_read_is_refused_and_never_answered() -> None:
    async with with_workers(waiting_max=3) as (workers, answers):
        assert [workers.submit(lambda: 1, answers) for _ in range(5)] == [True, True, True, False, False]
        await answers.wait(3)
        assert workers.submit(lambda: 1, answers)
        await answers.wait(4)
        assert answers.seen.count(1) == 4


@pytest.mark.expect_error("read failed")
async def test_a_failure_is_the_answer_of_its_read_alone() -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def job() -> None:
            raise error

        return job

    async with with_workers(workers=1) as (workers, answers):
        errors = (NoLedgerError(), NoEntryError(), LedgerInLimboError(), StorageDamagedError(), OSError(5, "EIO"))
        for error in errors:
            workers.submit(fail(error), answers)
            workers.submit(lambda: "good", answers)
        await answers.wait(10)
        codes = [one for one in answers.seen if one not in ("good", "after")]
        assert codes == [Rc.NO_LEDGER, Rc.NO_ENTRY, Rc.UNKNOWN_LEDGER_STATE, Rc.IO, Rc.IO]
        assert answers.seen.count("good") == 5


@pytest.mark.expect_error("a read failed")
async def test_a_mistake_of_ours_is_answered_as_an_io_error() -> None:
    def job() -> None:
        raise TypeError("ours")

    async with with_workers() as (workers, answers):
        workers.submit(job, answers)
        await answers.wait(1)
        assert answers.seen == [Rc.IO, "after"]


async def test_closing_answers_what_has_begun_and_takes_no_more() -> None:
    async with with_workers() as (workers, answers):
        workers.submit(lambda: 1, answers)
        await workers.aclose()
        assert answers.seen == [1, "after"]
        assert not workers.submit(lambda: 1, answers)


async def test_large_reads_of_a_slow_disk_wait_for_it_in_as_many_workers_as_are_of_use() -> None:
    sectors = Sectors(2000)  # batch reads of 1 MB
    now = 0.0

    async def loads_at(workers: ReadWorkers, answers: Answers, seconds: float) -> list[int]:
        """Return the loads of five reads at a time, after many that took so long."""

        def read() -> int:
            nonlocal now
            now += seconds
            return 1

        for _ in range(200):
            before = len(answers.seen) - answers.seen.count("after")
            workers.submit(read, answers)
            await answers.wait(before + 1)
        for _ in range(5):
            workers.submit(read, answers)
        loads = list(workers._loads)
        await answers.wait(before + 6)
        return loads

    async with with_workers(workers=4, sectors=sectors) as (workers, answers):
        workers.now = lambda: now
        assert await loads_at(workers, answers, 0.001) == [5], "1 GB/s"
        assert await loads_at(workers, answers, 0.008) == [3, 2], "125 MB/s"
        assert await loads_at(workers, answers, 0.1) == [2, 1, 1, 1], "10 MB/s"
        assert await loads_at(workers, answers, 0.001) == [5, 0, 0, 0]


async def test_reads_that_are_not_large_are_shared_whatever_their_time() -> None:
    async with with_workers(workers=4, sectors=Sectors(100)) as (workers, answers):
        for number in range(1, 400):
            workers.submit(lambda: 1, answers)
            await answers.wait(number)
        for _ in range(16):
            workers.submit(lambda: 1, answers)
        assert min(workers._loads) > 0
        assert len(workers._loads) > 1
        await answers.wait(415)


async def test_a_worker_that_reads_large_pieces_is_alone_while_that_many_are_allowed() -> None:
    async with with_workers(workers=4) as (workers, answers):
        workers._sectors_per_read = 2048  # 1 MB
        workers._s_per_sector = 1.0
        workers.most_workers = partial(workers_beside_adds, 256 << 10)
        for number in range(3):
            workers.submit(partial(int, number), answers)
        assert workers._loads == [3]
        workers.most_workers = partial(workers_beside_adds, 3 << 20)
        for number in range(6):
            workers.submit(partial(int, number), answers)
        assert workers._loads == [3, 3, 3]
        workers.most_workers = partial(workers_beside_adds, 256 << 10)
        workers.submit(partial(int, 1), answers)
        assert workers._loads == [4, 3, 3]
        await answers.wait(10)
        assert workers._loads == [0, 0, 0]


async def test_adds_are_under_way_while_the_journal_has_records_and_a_moment_longer() -> None:
    journal = SimpleNamespace(queued_bytes=0, written_at=-math.inf)
    now = 100.0
    other = SimpleNamespace(queued_bytes=0, written_at=-math.inf)
    adding = AddsUnderWay([cast(Journal, each) for each in (other, journal)], lambda: now)
    assert not adding()
    journal.queued_bytes = 1
    assert adding()
    journal.queued_bytes, journal.written_at = 0, now
    assert adding()
    now += RECENT_S
    assert not adding()
