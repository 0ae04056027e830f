"""Deferred adds are answered when the kernel has them, forces when the disk has all adds answered before.

A crash in between never makes the journal look damaged.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie
from bookie.errors import JournalDamagedError
from bookie.journal.config import JournalConfig
from bookie.journal.format import NO_MARK, Fence, Force
from bookie.journal.replay import Replay
from bookie.sessions.session import BookieSession
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.bookie.build import CONFIG, JOURNAL, KEY, Client, add_frame, entry, run_of, with_bookie
from tests.unit.bookie.journal.bench import FOLDER, Bench, items
from tests.unit.bookie.machine import Machine

pytestmark = pytest.mark.seeded


def test_a_deferred_group_is_written_and_not_synced_and_does_not_move_the_mark() -> None:
    bench = Bench()
    start = bench.writer.mark
    result = bench.defer(0)
    assert (result.error, result.synced, result.mark) == (None, False, start)
    assert bench.writer.mark == start


def test_a_force_makes_everything_before_it_durable_whatever_a_crash_keeps() -> None:
    for seed in range(20):
        bench = Bench(seed=seed)
        for first in range(3):
            bench.defer(first)
        result = bench.force()
        assert (result.error, result.synced) == (None, True)
        assert result.mark == bench.writer.mark
        bench.defer(3)
        found = bench.entries()
        assert found[:3] == [(1, 0), (1, 1), (1, 2)]
        assert found[3:] in ([], [(1, 3)])


def test_a_synced_add_makes_the_deferred_ones_before_it_durable_too() -> None:
    for seed in range(20):
        bench = Bench(seed=seed)
        bench.defer(0)
        bench.defer(1)
        assert bench.add(0).synced
        assert bench.entries() == [(1, 0), (1, 1), (2, 0)]


def test_a_deferred_add_in_a_group_with_another_is_synced_with_it() -> None:
    bench = Bench()
    (result,) = bench.writer.write([*items([run_of(1, 0, 1)], deferred=True), *items([run_of(2, 0, 1)])])
    assert result.synced
    assert bench.entries() == [(1, 0), (2, 0)]


def test_a_crash_among_unsynced_groups_keeps_a_beginning_of_them_and_is_never_damage() -> None:
    kept = set()
    for seed in range(300):
        bench = Bench(seed=seed)
        assert bench.add(0).synced
        for first in range(4):
            bench.defer(3 * first, 3)
        found = bench.entries()
        assert found[0] == (2, 0)
        assert found[1:] == [(1, i) for i in range(len(found) - 1)]
        kept.add(len(found) - 1)
    assert len(kept) > 2, f"the crashes should differ: {kept}"


def test_a_bad_group_before_one_that_was_written_after_a_sync_is_damage_still() -> None:
    bench = Bench()
    bench.defer(0)
    bench.defer(1)
    bench.add(0)
    file = bench.world.disk.open(f"{FOLDER}/9.txn")
    file.pwrite(b"\xff", 512 + 30)
    file.sync()
    file.close()
    with pytest.raises(JournalDamagedError):
        bench.entries()


def test_a_full_file_is_synced_before_the_next_promises_it() -> None:
    for seed in range(10):
        bench = Bench(JournalConfig(preallocate=0, file_size_max=2048), seed=seed)
        for first in range(6):
            assert bench.defer(first).error is None
        assert bench.writer.mark.file_id > 9
        found = bench.entries()
        assert found == [(1, i) for i in range(len(found))]


@pytest.mark.expect_error("journal failed")
async def test_a_sync_that_fails_before_a_group_is_final(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client3(bookie)
    await client.add(7, 0, deferred=True)
    file = bookie.journal.of(0)._writer._file
    assert file is not None

    def fail() -> None:
        raise OSError(5, "EIO")

    monkeypatch.setattr(file, "sync", fail)
    assert await client.force(7) == Rc.IO
    assert bookie.failed.is_set()
    assert await client.add(7, 1) == Rc.IO


# --- through a session


class Client3:
    """A session that uses version 3."""

    def __init__(self, bookie: Bookie) -> None:
        self._txns = itertools.count(1)
        self.answers: list[v3.Response] = []
        self._news = trio.Event()
        self.session = BookieSession(bookie, self._write)

    def _write(self, parts: list[Buffer]) -> None:
        self.answers += v3.decode_responses(b"".join(parts))
        self._news.set()

    async def take(self) -> v3.Response:
        with trio.fail_after(60):
            while not self.answers:
                self._news = trio.Event()
                await self._news.wait()
        return self.answers.pop(0)

    def send_add(self, ledger_id: int, entry_id: int, *, deferred: bool = False) -> None:
        flags = v3.DEFERRED_SYNC if deferred else 0
        entries = [entry(ledger_id, entry_id)]
        self.session.receive(v3.add_requests(next(self._txns), ledger_id, [entry_id], KEY, entries, 0, flags))

    async def add(self, ledger_id: int, entry_id: int, *, deferred: bool = False) -> int:
        self.send_add(ledger_id, entry_id, deferred=deferred)
        answer = await self.take()
        assert isinstance(answer, v2.AddAcks)
        return answer.rc

    async def force(self, ledger_id: int) -> int:
        self.session.receive([v3.force_request(next(self._txns), ledger_id)])
        answer = await self.take()
        assert isinstance(answer, v3.Reply)
        assert isinstance(answer.outcome, v3.Done)
        return answer.outcome.rc


@asynccontextmanager
async def with_syncs() -> AsyncIterator[tuple[Bookie, list[str]]]:
    """Open a bookie whose journal records its syncs, and its writes without a sync."""
    async with with_bookie(config=replace(CONFIG, flush_interval_ms=60_000)) as bookie:
        events: list[str] = []
        writer = bookie.journal.of(0)._writer
        synced, written = writer._write_synced, writer._write

        def note_synced(file: Any, parts: Any) -> None:
            events.append("synced")
            synced(file, parts)

        def note_written(file: Any, parts: Any) -> None:
            events.append("written")
            written(file, parts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "_write_synced", note_synced)
            patch.setattr(writer, "_write", note_written)
            yield bookie, events


async def test_a_deferred_add_is_answered_without_a_sync_and_a_force_with_one() -> None:
    async with with_syncs() as (bookie, events):
        client = Client3(bookie)
        assert await client.add(7, 0, deferred=True) == Rc.OK
        assert (events, bookie.journal.of(0).has_unsynced) == (["written"], True)
        assert await client.force(7) == Rc.OK
        assert (events, bookie.journal.of(0).has_unsynced) == (["written", "synced"], False)
        assert await client.add(7, 1) == Rc.OK
        assert events == ["written", "synced", "synced"]


async def test_a_checkpoint_syncs_what_was_deferred_and_then_moves_the_mark() -> None:
    async with with_syncs() as (bookie, events):
        client = Client3(bookie)
        before = bookie.last_mark
        await client.add(7, 0, deferred=True)
        await bookie.checkpoint()
        assert events == ["written", "synced"]
        assert bookie.last_mark > before
        assert bookie.last_mark == bookie.journal.of(0).mark()


def test_random_orders_of_adds_and_forces_lose_nothing_that_was_promised() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        bench = Bench(seed=seed)
        first = synced = 0
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.7:
                count = rng.randrange(1, 4)
                bench.defer(first, count)
                first += count
            else:
                bench.force()
                synced = first
        found = bench.entries()
        assert len(found) >= synced
        assert found == [(1, i) for i in range(len(found))]


async def test_nothing_of_a_force_is_in_the_file_for_other_readers(bookie: Bookie) -> None:
    client = Client3(bookie)
    await client.force(7)
    bookie.fence(8, KEY, lambda rc: None)
    await client.force(8)
    records = [record for batch in Replay(bookie.world.disk, JOURNAL, NO_MARK).batches() for record in batch]
    assert [record for record in records if isinstance(record, Force)] == []
    assert Fence(8) in records


UNSYNCED = replace(CONFIG, journal_sync=False, journal_sync_interval_ms=1000, flush_interval_ms=10**6)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("file_mb", [1, 2048], ids=["with rolls", "one file"])
async def test_without_syncs_a_bookie_starts_after_a_power_cut_and_has_what_was_forced(machine, seed, file_mb):
    forced = -1
    added = -1

    machine.config = replace(UNSYNCED, journal_size_max_mb=file_mb)
    async with machine.life(crash=True) as (bookie, client):
        client, forcing = Client(bookie), Client3(bookie)
        rng = random.Random(seed)
        payload = b"x" * (200_000 if file_mb == 1 else 100)
        for entry_id in range(12):
            assert await client.ask(add_frame(7, entry_id, payload)) == [v2.AddAcks(Rc.OK, 7, entry_id, entry_id)]
            added = entry_id
            if rng.random() < 0.2:
                assert await forcing.force(7) == Rc.OK
                forced = added
    async with machine.life() as (_, client):
        found = [(await client.read(7, entry_id)).rc == Rc.OK for entry_id in range(added + 1)]
        assert all(found[: forced + 1]), "what was forced is there"
        assert found == sorted(found, reverse=True), "what is missing is the end"


async def test_without_syncs_the_journal_is_synced_at_its_interval(machine: Machine) -> None:
    machine.config = UNSYNCED
    async with machine.life(crash=True) as (bookie, client):
        await client.add(7, 0)
        assert bookie.journal.of(0).has_unsynced
        await trio.sleep(1.5)
        assert not bookie.journal.of(0).has_unsynced
    async with machine.life() as (_, client):
        assert (await client.read(7, 0)).rc == Rc.OK
