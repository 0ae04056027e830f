"""A ledger over a network that breaks connections at any byte, changes bytes, lags. docs/faults.md has the list."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio

from quire.ledger.errors import LedgerError
from quire.metadata.ledger_metadata import LedgerState
from quire.wire.bookkeeper.v2 import Rc
from tests.support.effort import effort
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, begun, payloads
from tests.unit.ledger.fake_network import FakeNetwork, Wire

KEY = range(8, 28)
"""Bytes of the first request that hold the ledger's key."""
STREAM = 900
"""Bytes, more than the requests of the test below to one bookie."""


def cut_at(network: FakeNetwork, victim: str, at: int, *, answers: bool) -> None:
    """Pass exactly `at` bytes in one direction of the first connection to `victim`, then break it."""
    first: list[Wire] = []
    seen = 0

    def change(wire: Wire, data: bytes) -> bytes:
        nonlocal seen
        if wire.bookie_id != victim or (first and first[0] is not wire):
            return data
        first[:] = [wire]
        rest = at - seen
        seen += len(data)
        if len(data) <= rest:
            return data
        if rest >= 0:
            trio.lowlevel.spawn_system_task(reset, wire)
        return data[: max(rest, 0)]

    async def reset(wire: Wire) -> None:
        wire.reset()

    if answers:
        network.change_answer = change
    else:
        network.change = change


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "tried again"])
@pytest.mark.parametrize("answers", [False, True], ids=["requests", "answers"])
async def test_n4_a_connection_that_breaks_at_any_byte_costs_no_entry_and_doubles_none(answers: bool, replaced: bool):
    """Each member has the entries once, with the same bytes, if the bookie is replaced and if it gets them again."""
    places = [*range(0, 120, effort(quick=2, full=1)), *range(120, STREAM, 7)]

    async def story(at: int) -> None:
        cluster = FakeCluster(4, seed=at)
        network = FakeNetwork(cluster)
        async with network.client(disable_ensemble_change=not replaced) as client:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            victim = (await cluster.metadata(writer.ledger_id)).fragments[0].bookies[0]
            cut_at(network, victim, at, answers=answers)
            seen = Confirmations(writer)
            for first in range(0, 8, 2):
                writer.append(payloads(first, first + 1))
                await trio.sleep(0.001)
            await seen.until(7)
            assert seen.payloads == payloads(0, 7)
            await check_copies(cluster, writer.ledger_id, 8, copies=2)
            reader = await client.open(writer.ledger_id, recover=True)
            assert [bytes(each) for each in await reader.read(0, 7)] == payloads(0, 7)
            assert reader.last_entry_id == 7

    for at in places:
        await story(at)


async def check_copies(cluster: FakeCluster, ledger_id: int, count: int, *, copies: int) -> None:
    """Check that at least this many members have each entry, and that all copies are equal."""
    metadata = await cluster.metadata(ledger_id)
    for entry_id in range(count):
        members = cluster.of(metadata.fragment_at(entry_id).bookies)
        found = [entries[entry_id] for each in members if entry_id in (entries := each.entries.get(ledger_id, {}))]
        assert len(found) >= copies
        assert len(set(found)) == 1


async def test_n7_whatever_byte_of_an_add_changes_on_its_way_what_was_confirmed_is_read_as_it_was_sent() -> None:
    """A byte of length, head, key, ids, digest or payload changes in transit to one bookie of three."""

    async def story(at: int, bit: int) -> bool:
        """Write, change the byte `at`, and recover; return whether all entries were confirmed."""
        cluster = FakeCluster(4, seed=at)
        network = FakeNetwork(cluster)
        async with network.client(add_timeout_s=2.0) as client:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            victim = (await cluster.metadata(writer.ledger_id)).fragments[0].bookies[at % 3]
            network.change = flip(at, bit, victim)
            seen = Confirmations(writer)
            for first in range(0, 6, 2):
                if not seen.errors:
                    writer.append(payloads(first, first + 1))
                await trio.sleep(0.001)
            await until(lambda: seen.last == 5 or bool(seen.errors))
            assert seen.payloads == payloads(0, seen.last)
            network.change = lambda wire, data: data
        async with cluster.client() as client:
            try:
                reader = await client.open(writer.ledger_id, recover=True)
            except LedgerError:
                # A bookie whose first add had a changed key refuses all clients: it must be stopped first.
                assert at in KEY
                cluster.bookies[victim].stop()
                reader = await client.open(writer.ledger_id, recover=True)
            assert reader.last_entry_id >= seen.last
            found = [bytes(each) for each in await reader.read(0, reader.last_entry_id)] if seen.last >= 0 else []
            assert found == payloads(0, len(found) - 1)
            assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.CLOSED
        return seen.last == 5

    rng = random.Random(7)
    confirmed = [await story(at, rng.randrange(8)) for at in range(0, 420, effort(quick=2, full=1))]
    assert sum(confirmed) > len(confirmed) * 0.7


def flip(at: int, bit: int, victim: str | None = None) -> Callable[[Wire, bytes], bytes]:
    """Return a function that flips one bit of byte `at` of the data, for `victim` or for any bookie."""
    seen = 0

    def change(wire: Wire, data: bytes) -> bytes:
        nonlocal seen
        if victim not in (None, wire.bookie_id):
            return data
        place = at - seen
        seen += len(data)
        if 0 <= place < len(data):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            return bytes(changed)
        return data

    return change


async def test_n7_whatever_byte_of_an_answer_changes_on_its_way_nothing_else_than_what_was_stored_is_read() -> None:
    async def story(at: int, bit: int) -> None:
        cluster = FakeCluster(3, seed=at)
        async with cluster.client() as client:
            writer, _ = await begun(client, (3, 3, 2), entries=6)
            await writer.close()
        network = FakeNetwork(cluster)
        async with network.client(read_timeout_s=2.0) as client:
            network.change_answer = flip(at, bit)
            reader = await client.open(writer.ledger_id, recover=False)
            for first in range(6):
                assert [bytes(each) for each in await reader.read(first, 5)] == payloads(first, 5)

    rng = random.Random(7)
    for at in range(0, 900, effort(quick=4, full=2)):
        await story(at, rng.randrange(8))


@pytest.mark.parametrize("seed", range(3))
async def test_n3_over_a_network_with_200_ms_of_delay_and_seconds_of_jitter_entries_are_confirmed_in_order(seed: int):
    """No bookie is declared dead because it is late, and nothing is out of order."""
    rng = random.Random(seed)
    cluster = FakeCluster(4, seed=seed)
    network = FakeNetwork(cluster)
    network.delay_s = lambda: 0.2 + (rng.random() * 5.0 if rng.random() < 0.01 else 0.0)
    async with network.client() as client:
        writer, seen = await begun(client, (3, 3, 2))
        for first in range(0, 2000, 10):
            writer.append(payloads(first, first + 9))
            await trio.sleep(0.05)
        await seen.until(1999)
        assert (seen.payloads, seen.confirmed) == (payloads(0, 1999), list(range(2000)))
        assert len((await cluster.metadata(writer.ledger_id)).fragments) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_n2_links_that_flap_every_100_ms_cost_few_changes_of_the_ensemble(seed: int) -> None:
    """The connections to nine of twelve bookies break five times per second for half a minute, and requests in that
    time are refused: each bookie is tried once.
    """
    cluster = FakeCluster(12, seed=seed)
    network = FakeNetwork(cluster)
    async with network.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        flapping = [*cluster.bookies][3:]
        broken = False

        def refuse(request: object) -> Rc | None:
            return Rc.IO if broken else None

        for bookie in cluster.of(flapping):
            bookie.refuse = refuse
        seen = Confirmations(writer)
        for number in range(280):
            broken = bool(number % 2)
            for wire in list(network.wires):
                if broken and wire.bookie_id in flapping:
                    wire.reset()
            writer.append(payloads(number, number))
            await trio.sleep(0.1)
        await seen.until(279)
        assert seen.payloads == payloads(0, 279)
        metadata = await cluster.metadata(writer.ledger_id)
        assert not {*flapping} & {*metadata.fragments[-1].bookies}
        assert cluster.ledgers.writes <= len(flapping)
        await check_copies(cluster, writer.ledger_id, 280, copies=2)
