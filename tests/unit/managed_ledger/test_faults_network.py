"""A log whose broker is cut off from its bookies, or from everything, and returns. docs/faults.md has the list."""

from __future__ import annotations

import pytest
import trio

from managed_ledger.errors import ManagedLedgerFencedError
from managed_ledger.writing.state import State
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.managed_ledger.cluster import NAME, append, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import Sink
from tests.unit.managed_ledger.hosts import ADD_TIMEOUT_S, host


@pytest.mark.parametrize("way", ["both ways", "requests", "answers"])
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_n1_cut_from_one_bookie_a_log_goes_on_and_cut_from_two_or_three_it_stalls_and_confirms_nothing(
    count: int, way: str
) -> None:
    """Some of four bookies are cut off; one of the four is not a member of the ledger."""
    cluster = FakeCluster(4)
    async with host(cluster) as a:
        log = await a.factory.open(NAME)
        await publish(log, *numbered(0, 5))
        members = (await cluster.metadata(log.ledgers[-1].ledger_id)).fragments[-1].bookies
        lost = {*members[:count]}
        if count > 1:
            lost |= {*cluster.bookies} - {*members}  # otherwise a spare one would complete the ack quorum
        if way != "answers":
            a.network.deaf = {*lost}
        if way != "requests":
            a.network.mute = {*lost}
        sink = append(log, numbered(5, 5))
        if count == 1:
            await until(lambda: sink.count == 5)
            await trio.sleep(2 * ADD_TIMEOUT_S)
            assert not lost & {*(await cluster.metadata(log.ledgers[-1].ledger_id)).fragments[-1].bookies}
        else:
            await trio.sleep(60)
            assert (sink.count, sink.errors) == (0, []), "nothing is confirmed, and nobody is told that it failed"
        a.network.heal()
        await until(lambda: sink.count == 5)
        await publish(log, *numbered(10, 5))
        assert await read_all(log) == numbered(0, 15)


async def test_n2_links_to_all_bookies_that_flap_make_no_storm_of_ledgers_and_lose_nothing() -> None:
    """Every connection breaks twice per second, for a minute."""
    cluster = FakeCluster(5)
    async with host(cluster) as a:
        log = await a.factory.open(NAME)
        sink = Sink()
        for number in range(120):
            log.append(numbered(10 * number, 10), sink)
            await trio.sleep(0.25)
            for wire in list(a.network.wires):
                wire.reset()
            await trio.sleep(0.25)
        await until(lambda: sink.count == 1200)
        assert sink.errors == []
        assert await read_all(log) == numbered(0, 1200)
        assert len(log.ledgers) <= 60
        assert a.network.ledgers.writes <= 240, "two writes of metadata for each break"


@pytest.mark.parametrize("late", [1, 5])
async def test_n9_m6_what_an_owner_writes_that_was_cut_off_and_replaced_is_refused_when_the_network_heals(
    late: int,
) -> None:
    """{A} | {B, bookies, metadata}. A does not detect the partition: its requests arrive at the bookies when all is
    healed."""
    cluster = FakeCluster(4)
    async with host(cluster) as a, host(cluster) as b:
        old = await a.factory.open(NAME)
        gone: list[str] = []
        old.on_fenced = lambda: gone.append("a")
        await publish(old, *numbered(0, 5))
        a.cut()
        unanswered = Sink()
        old.append([b"late"] * late, unanswered)
        new = await b.factory.open(NAME)
        assert await read_all(new) == numbered(0, 5)
        await publish(new, *numbered(5, 5))
        assert unanswered.count == 0
        a.heal()
        after = Sink()
        old.append([b"later"], after)
        await until(lambda: bool(after.errors))
        assert isinstance(after.errors[0], ManagedLedgerFencedError)
        assert (unanswered.count, after.count) == (0, 0)
        assert (old.state, gone) == (State.FENCED, ["a"])
        await publish(new, *numbered(10, 5))
        assert await read_all(new) == numbered(0, 15)
        assert new.state is State.OPEN


async def test_n9_an_owner_that_sleeps_in_a_half_that_can_write_nothing_confirms_nothing_until_it_is_replaced() -> None:
    """The other way round: A keeps one bookie and loses the rest; B has the rest."""
    cluster = FakeCluster(4)
    async with host(cluster) as a, host(cluster) as b:
        old = await a.factory.open(NAME)
        await publish(old, *numbered(0, 5))
        members = (await cluster.metadata(old.ledgers[-1].ledger_id)).fragments[-1].bookies
        a.cut()
        kept = members[0]
        a.network.deaf.discard(kept)
        a.network.mute.discard(kept)
        b.network.deaf.add(kept)
        b.network.mute.add(kept)
        sink = append(old, [b"late"] * 5)
        await trio.sleep(30)
        assert sink.count == 0
        new = await b.factory.open(NAME)
        await publish(new, *numbered(5, 5))
        a.heal()
        b.network.heal()
        await until(lambda: old.state is State.FENCED)
        assert sink.count == 0
        assert await read_all(new) == numbered(0, 10)
