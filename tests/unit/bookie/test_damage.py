"""A bookie was killed, and one file on its disk was damaged.

It refuses to start, names the damage when it is read, or has everything. An acknowledged entry is never absent.
simulation/machines/damage.py does the damage.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.errors import JournalDamagedError, StorageDamagedError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.damage import DamagedError
from quire.world.doors import World
from simulation.machines.damage import Contents, SeenStore, bookie_contents, trial
from simulation.machines.host import Host
from simulation.machines.world import Universe, on_host
from tests.support.effort import effort
from tests.unit.bookie.build import CONFIG, JOURNAL, LEDGERS, Client, entry, opened


async def killed(universe: Universe, tree: MemoryTree, *, clean: bool = False) -> Host:
    """Prepare a bookie with entries in entry logs and more entries only in the journal, then kill (or stop) it."""
    host = universe.host("bookie")

    async def main(world: World, stop: trio.Event) -> None:
        async with opened(world, tree) as bookie:
            client = Client(bookie)
            for ledger_id in (7, 8):
                await client.add(ledger_id, 0, 20)
            await client.fence(8)
            await bookie.checkpoint()
            for ledger_id in (7, 9):
                await client.add(ledger_id, 20, 30)
            await client.fence(9)
            if not clean:
                host.cut_power(lose_unsynced=False)
            await trio.lowlevel.checkpoint()

    host.start(main)
    await host.wait_down()
    return host


@pytest.mark.parametrize("clean", [False, True])
async def test_whatever_is_damaged_nothing_acknowledged_is_called_absent(clean, universe: Universe):
    outcomes: Counter[str] = Counter()
    tree = MemoryTree()
    host = await killed(universe, tree, clean=clean)

    async def opening(world: World, wanted: Contents | None) -> Contents:
        return await bookie_contents(world, CONFIG, SeenStore(tree), wanted)

    rng = random.Random(1)
    for _ in range(effort(quick=60, full=150)):
        outcome = await trial(universe, host, opening, rng)
        outcomes[outcome.rpartition(" ")[2]] += 1
    assert outcomes["refused"] > 10
    assert outcomes["served"] > 10


Check = Callable[[Bookie], Awaitable[None]]


async def after(universe: Universe, harm: Callable[[Host], object], check: Check) -> None:
    """Kill a bookie, call `harm(host)`, start it again and call `check(bookie)`."""
    tree = MemoryTree()
    host = await killed(universe, tree)
    harm(host)
    async with on_host(universe, host.name) as world, open_bookie(world, CONFIG, MemoryStore(tree)) as bookie:
        await check(bookie)


async def nothing_served(bookie: Bookie) -> None:
    pytest.fail("the bookie serves")


async def all_is_there(bookie: Bookie) -> None:
    client = Client(bookie)
    for ledger_id, entry_ids in ((7, range(50)), (8, range(20)), (9, range(20, 50))):
        for entry_id in entry_ids:
            assert bytes((await client.read(ledger_id, entry_id)).entry) == entry(ledger_id, entry_id)


def journal(host: Host) -> str:
    return max(path for path in host.disk.paths() if path.endswith(".txn"))


@pytest.mark.parametrize("bit", [9, 10, 12, 14, 15, 17, 24, 40])
async def test_a_mark_with_a_flipped_bit_hides_nothing_of_the_journal(bit, universe: Universe):
    await after(universe, lambda host: host.disk.flip(f"{LEDGERS}/lastMark", 15 - bit // 8, bit % 8), all_is_there)


async def test_a_journal_cut_between_two_groups_refuses_the_start(universe: Universe):
    with pytest.raises(JournalDamagedError, match="it was synced up to"):
        await after(universe, lambda host: host.disk.cut(journal(host), 1024), nothing_served)


async def test_a_damaged_last_group_is_no_unsynced_tail(universe: Universe):
    def harm(host: Host) -> None:
        path = journal(host)
        last = len(host.disk.read(path).rstrip(b"\0"))
        host.disk.flip(path, last - 10, 1)

    with pytest.raises(JournalDamagedError, match="it was synced up to"):
        await after(universe, harm, nothing_served)


async def test_a_missing_newest_journal_file_refuses_the_start(universe: Universe):
    with pytest.raises(JournalDamagedError, match="missing"):
        await after(universe, lambda host: host.disk.remove(journal(host)), nothing_served)


async def test_without_forgotten_fences_it_does_not_start(universe: Universe):
    with pytest.raises(StorageDamagedError, match="forgottenFences is missing"):
        await after(universe, lambda host: host.disk.remove(f"{LEDGERS}/forgottenFences"), nothing_served)


async def test_an_index_that_is_gone_is_not_begun_anew(universe: Universe):
    with pytest.raises(StorageDamagedError, match="locations is missing"):
        await after(universe, lambda host: host.maps.remove(f"{LEDGERS}/locations"), nothing_served)


async def test_a_damaged_index_refuses_the_start_by_name(universe: Universe):
    with pytest.raises(DamagedError, match=re.escape(LEDGERS)):
        await after(universe, lambda host: host.maps.damage(random.Random(1)), nothing_served)


@pytest.mark.parametrize("text", [b"ffffffff\n", b"7fffffff\n", b"\xff\n", b""])
async def test_a_damaged_last_id_costs_nothing(text, universe: Universe):
    def harm(host: Host) -> None:
        host.disk.cut(f"{LEDGERS}/lastId", len(text))
        host.disk.overwrite(f"{LEDGERS}/lastId", 0, text)

    async def check(bookie: Bookie) -> None:
        await all_is_there(bookie)
        await Client(bookie).add(7, 50, 60)
        await bookie.checkpoint()

    await after(universe, harm, check)


async def test_a_refused_start_leaves_everything_as_it_was(universe: Universe):
    tree = MemoryTree()
    host = await killed(universe, tree, clean=True)
    host.disk.cut(f"{JOURNAL}/{journal(host).rpartition('/')[2]}", 700)
    host.disk.remove(f"{LEDGERS}/lastMark.sealed")
    before = {path: host.disk.read(path) for path in host.disk.paths() if "lock" not in path}
    refused: list[Exception] = []

    async def main(world: World, stop: trio.Event) -> None:
        try:
            async with open_bookie(world, CONFIG, MemoryStore(tree)):
                pass
        except JournalDamagedError as error:
            refused.append(error)

    host.disk.flip(f"{LEDGERS}/lastMark", 7, 6)  # the id of a file that does not exist
    before[f"{LEDGERS}/lastMark"] = host.disk.read(f"{LEDGERS}/lastMark")
    host.start(main)
    await host.wait_down()
    assert len(refused) == 1
    assert {path: host.disk.read(path) for path in host.disk.paths() if "lock" not in path} == before
