"""Ledgers that other bookies have by now. Covers bookie/gc/overreplicated.py and bookie/gc/limited_store.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie
from bookie.gc.overreplicated import QUIET_S
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata, LedgerState
from quire.metadata.local.memory import MemoryStore, MemoryTree
from simulation.machines.world import in_world
from tests.unit.bookie.build import CONFIG, Client, opened

pytestmark = pytest.mark.seeded

OTHERS = LedgerMetadata(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(first_entry_id=0, bookies=("b:1", "b:2")),),
    state=LedgerState.CLOSED,
    last_entry_id=2,
    length=10,
)


@dataclass
class FakePeers:
    marked: bool = False
    reason: str = ""
    asked: list[list[int]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    at_check: list[object] = field(default_factory=list)
    opened: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FakePeers]:
        self.opened += 1
        yield self

    @asynccontextmanager
    async def hold(self, ledger_id: int) -> AsyncIterator[bool]:
        self.held.append(ledger_id)
        yield not self.marked
        self.held.remove(ledger_id)

    async def lacking(self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]) -> str:
        assert self.held == [ledger_id], "the lock is held while copies are read"
        self.asked.append(list(entry_ids))
        for act in self.at_check:
            await act()  # type: ignore[operator]
        return self.reason


@dataclass
class Scene:
    bookie: Bookie
    store: MemoryStore
    manager: LedgerManager
    peers: FakePeers

    async def add(self, metadata: LedgerMetadata, entries: int = 3) -> int:
        ledger_id, _ = await self.manager.create(metadata)
        await Client(self.bookie).add(ledger_id, 0, entries)
        return ledger_id

    async def collect(self) -> list[int]:
        return await self.bookie.garbage.collect_overreplicated(self.store, self.bookie.instance_id)


@asynccontextmanager
async def scene(**config: Any) -> AsyncIterator[Scene]:
    tree = MemoryTree()
    async with in_world(1) as world, opened(world, tree, replace(CONFIG, **config)) as bookie:
        store = MemoryStore(tree)
        peers = FakePeers()
        bookie.garbage.open_peers = peers.open
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=world.rng)
        yield Scene(bookie, store, manager, peers)


async def test_a_ledger_of_others_is_deleted_when_they_have_all_that_we_hold() -> None:
    async with scene() as it:
        ledger_id = await it.add(OTHERS)
        ours = await it.add(replace(OTHERS, fragments=(Fragment(0, ("b:1", "bookie:1")),)))
        assert await it.collect() == [ledger_id]
        assert it.peers.asked == [[0, 1, 2]]
        assert (it.bookie.storage.ledgers(), it.peers.held) == ([ours], [])
        assert not it.bookie.storage.held_ledgers, "its id may be used again"
        assert (it.bookie.garbage.overreplicated.deleted, it.bookie.garbage.overreplicated.kept) == (1, 0)


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
async def test_open_ledgers_and_those_in_recovery_are_left(state: LedgerState) -> None:
    async with scene() as it:
        ledger_id = await it.add(replace(OTHERS, state=state, last_entry_id=-1, length=0))
        assert await it.collect() == []
        assert (it.bookie.storage.ledgers(), it.peers.opened) == ([ledger_id], 0)


async def test_a_ledger_that_names_this_bookie_in_an_old_fragment_stays() -> None:
    async with scene() as it:
        fragments = (Fragment(0, ("bookie:1", "b:1")), Fragment(1, ("b:2", "b:1")))
        await it.add(replace(OTHERS, fragments=fragments))
        assert await it.collect() == []


async def test_a_ledger_under_replication_stays() -> None:
    async with scene() as it:
        it.peers.marked = True
        await it.add(OTHERS)
        assert await it.collect() == []
        assert it.bookie.garbage.overreplicated.kept == 1


async def test_a_copy_that_may_be_the_last_good_one_stays() -> None:
    async with scene() as it:
        it.peers.reason = "entry 1 at b:2: missing"
        ledger_id = await it.add(OTHERS)
        assert await it.collect() == []
        assert it.bookie.storage.ledgers() == [ledger_id]


async def test_what_is_behind_the_last_entry_is_needed_by_none() -> None:
    async with scene() as it:
        await it.add(replace(OTHERS, last_entry_id=0), entries=3)
        assert len(await it.collect()) == 1
        assert it.peers.asked == [[0]]


async def test_a_ledger_that_is_copied_here_meanwhile_stays() -> None:
    async with scene() as it:
        ledger_id = await it.add(OTHERS)

        async def copy() -> None:
            await Client(it.bookie).add(ledger_id, 0)

        it.peers.at_check = [copy]
        assert await it.collect() == []


async def test_a_copy_that_came_just_before_the_search_counts_as_one_that_is_being_made() -> None:
    async with scene() as it, trio.open_nursery() as nursery:
        ledger_id = await it.add(OTHERS)

        async def name_it() -> None:
            await trio.sleep(QUIET_S - 1)
            found = await it.manager.read(ledger_id)
            assert found is not None
            fragments = (Fragment(0, ("b:1", "bookie:1")),)
            await it.manager.write(ledger_id, replace(found.value, fragments=fragments), found.version)

        nursery.start_soon(name_it)
        assert await it.collect() == []
        assert it.peers.asked == []


async def test_a_ledger_whose_metadata_changes_during_the_check_stays() -> None:
    async with scene() as it:
        ledger_id = await it.add(OTHERS)

        async def change() -> None:
            found = await it.manager.read(ledger_id)
            assert found is not None
            await it.manager.write(ledger_id, replace(found.value, ctime_ms=5), found.version)

        it.peers.at_check = [change]
        assert await it.collect() == []


async def test_the_search_comes_at_its_interval() -> None:
    async with scene(overreplicated_wait_ms=60_000) as it:
        await it.add(OTHERS)
        await trio.sleep(59)
        assert it.peers.opened == 0
        await trio.sleep(1 + QUIET_S + 1)
        assert it.bookie.storage.ledgers() == []


async def test_an_interval_of_zero_switches_it_off() -> None:
    async with scene(overreplicated_wait_ms=0) as it:
        await it.add(OTHERS)
        await trio.sleep(3 * QUIET_S)
        assert len(it.bookie.storage.ledgers()) == 1


async def test_requests_to_the_metadata_have_a_rate() -> None:
    async with scene(metadata_rate=2) as it:
        it.peers.reason = "none"
        for _ in range(6):
            await it.add(replace(OTHERS, state=LedgerState.OPEN, last_entry_id=-1, length=0))
        begun = trio.current_time()
        await it.collect()
        assert 3.0 <= trio.current_time() - begun < 6.0, "6 reads, and 2 of the cluster"


async def test_so_many_ledgers_are_checked_at_once() -> None:
    async with scene(overreplicated_at_once=1) as it:
        for _ in range(3):
            await it.add(OTHERS)
        begun = trio.current_time()
        assert len(await it.collect()) == 3
        assert 3 * QUIET_S <= trio.current_time() - begun < 4 * QUIET_S
