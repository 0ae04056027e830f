from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import AddQuorumTimeoutError, LedgerWriteError
from quire.ledger.striping import Striping
from quire.ledger.writing.advanced_writer import AdvancedLedgerWriter
from quire.ledger.writing.ensemble_changes import quorums_survive
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.ledgers import Fragment, LedgerMetadata
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, begun, payloads

COUNT = 600
"""Entries of a random run."""


def test_quorums_survive_as_long_as_every_write_set_has_an_ack_quorum_left() -> None:
    striped = Striping(5, 3)
    assert quorums_survive(striped, 2, [])
    assert quorums_survive(striped, 2, [4])
    assert not quorums_survive(striped, 2, [0, 1])
    assert not quorums_survive(striped, 2, [0, 2])
    assert quorums_survive(Striping(6, 3), 2, [0, 3])
    assert not quorums_survive(Striping(6, 3), 3, [0])


@pytest.mark.bookies(5, delay_ensemble_change=True)
async def test_a_delayed_change_waits_until_an_ack_quorum_is_at_stake_and_then_replaces_all_that_failed(
    cluster: FakeCluster, client: LedgerClient
) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    before = writer.metadata.fragments[0].bookies
    await writer.write(payloads(0, 0)[0])
    cluster.bookies[before[1]].stop()
    for entry_id in range(1, 10):
        await writer.write(payloads(entry_id, entry_id)[0])
    await trio.sleep(100)
    assert len(writer.metadata.fragments) == 1
    assert list(writer.failed_bookies) == [before[1]]
    cluster.bookies[before[0]].stop()
    await writer.write(payloads(10, 10)[0])
    assert writer.metadata.fragments[0] == Fragment(0, before)
    changed = writer.metadata.fragments[-1]
    assert changed.first_entry_id == 10
    assert changed.bookies[2] == before[2]
    assert not {before[0], before[1]} & set(changed.bookies)
    assert writer.failed_bookies == {}


@pytest.mark.bookies(delay_ensemble_change=True)
async def test_a_bookie_whose_change_was_delayed_is_taken_back_and_gets_what_is_not_confirmed(cluster, client):
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    [away, *others] = cluster.members(writer)
    await writer.write(b"0")
    away.stop()
    await writer.write(b"1")
    await trio.sleep(20)
    for bookie in others:
        bookie.hold = True
    writer.append([b"2", b"3"])
    away.down = False
    await trio.sleep(20)
    assert sorted(away.entries[writer.ledger_id]) == [0, 2, 3], "entry 1 was confirmed without it"
    assert writer.failed_bookies == {}
    others[0].release()
    await writer.wait_confirmed(3)
    assert len(writer.metadata.fragments) == 1


@pytest.mark.bookies(delay_ensemble_change=True)
async def test_acks_that_an_excused_bookie_gave_before_still_count(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    first, second, third = cluster.members(writer)
    second.hold = third.hold = True
    writer.append(payloads(0, 3))
    first.stop()
    second.release()
    await trio.lowlevel.checkpoint()
    await writer.wait_confirmed(3)


@pytest.mark.bookies(4, delay_ensemble_change=True)
async def test_a_read_only_bookie_is_replaced_at_once_though_changes_are_delayed(cluster, client):
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    full = cluster.members(writer)[0]
    full.refuse = lambda request: Rc.READ_ONLY
    await writer.write(b"entry")
    await trio.sleep(1)
    assert full.bookie_id not in writer.metadata.fragments[-1].bookies


@pytest.mark.parametrize("ack_quorum", [2, 3])
@pytest.mark.bookies(6, disable_ensemble_change=True)
async def test_with_changes_disabled_a_failed_bookie_is_tried_again_until_it_is_back(ack_quorum, cluster, client):
    writer, seen = await begun(client, (3, 3, ack_quorum), entries=4)
    away = cluster.members(writer)[1]
    away.stop()
    writer.append(payloads(4, 9))
    await trio.sleep(50)
    assert seen.last == (9 if ack_quorum == 2 else 3)
    assert away.bookie_id in writer.failed_bookies
    away.down = False
    await trio.sleep(5)
    await seen.write(10, 10)
    assert 10 in away.entries[writer.ledger_id]
    assert (ack_quorum == 2) == (9 not in away.entries[writer.ledger_id])
    await writer.close()
    assert len(writer.metadata.fragments) == 1


@pytest.mark.bookies(disable_ensemble_change=True)
async def test_a_bookie_that_stays_away_is_tried_every_few_seconds_only(cluster: FakeCluster, client: LedgerClient):
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
    away = cluster.members(writer)[1]
    tries = []

    def refuse(request: object) -> Rc:
        tries.append(trio.current_time())
        return Rc.IO

    away.refuse = refuse
    writer.append(payloads(0, 3))
    await trio.sleep(100)
    assert 50 <= len(tries) <= 70
    away.refuse = lambda request: None
    await writer.wait_confirmed(3)


@pytest.mark.bookies(disable_ensemble_change=True, add_quorum_timeout_s=8)
async def test_an_entry_that_does_not_reach_its_ack_quorum_in_the_time_set_for_it_ends_the_writer(cluster, client):
    writer, seen = await begun(client, (3, 3, 3))
    for entry_id in range(10):
        writer.append(payloads(entry_id, entry_id))
        await trio.sleep(2)
    assert not seen.errors
    cluster.bookies["bookie1:3181"].down = True
    cluster.bookies["bookie1:3181"].lose_links()
    began = trio.current_time()
    writer.append(payloads(10, 10))
    error = await seen.until_failed()
    assert isinstance(error, AddQuorumTimeoutError)
    assert error.code == -21
    assert 8 <= trio.current_time() - began < 14


@pytest.mark.parametrize("allowed", [0, 1, 2])
async def test_a_writer_has_as_many_ensemble_changes_as_are_allowed_and_then_fails(allowed: int) -> None:
    cluster = FakeCluster(6)
    async with cluster.client(ensemble_changes_max=allowed) as client:
        writer, seen = await begun(client, (3, 3, 3))
        for change in range(allowed):
            cluster.bookies[writer.metadata.fragments[-1].bookies[0]].stop()
            await seen.write(change, change)
        cluster.bookies[writer.metadata.fragments[-1].bookies[0]].stop()
        writer.append(payloads(allowed, allowed))
        error = await seen.until_failed()
        assert type(error) is LedgerWriteError
        assert error.code == -12
        await writer.close()
        assert writer.metadata.last_entry_id == allowed - 1


@pytest.mark.parametrize("settings", [{}, {"delay_ensemble_change": True}, {"disable_ensemble_change": True}])
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_bookies_fail_and_return_what_was_confirmed_survives_the_loss_of_all_but_an_ack_quorum(
    seed: int, settings: dict[str, Any]
) -> None:
    """AllAckedEntriesAreReadable, AllCommittedEntriesReachAckQuorum: every confirmed entry is on Qa bookies of its
    fragment.
    """
    rng = random.Random(seed)
    cluster = FakeCluster(12, seed=seed)
    async with cluster.client(quarantine_s=0.5, add_timeout_s=2, **settings) as client:
        size, write, ack = rng.choice([(3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 4, 2)])
        writer: LedgerWriter | AdvancedLedgerWriter
        if rng.random() < 0.5:
            writer = await client.create(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        else:
            writer = await client.create_adv(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        seen = Confirmations(writer)
        note = writer.on_confirmed

        def confirmed(first: int, last: int) -> None:
            """The check is immediate, because later adds could hide that a confirmation was too early."""
            for entry_id in range(first, last + 1):
                bookies = cluster.of(writer.metadata.fragment_at(entry_id).bookies)
                members = [bookies[index] for index in Striping(size, write).write_set(entry_id)]
                copies = sum(entry_id in each.entries.get(writer.ledger_id, {}) for each in members)
                assert copies >= ack, f"AllAckedEntriesAreReadable: {entry_id}"
            note(first, last)

        writer.on_confirmed = confirmed

        async def slow_metadata(ledger_id: int, metadata: LedgerMetadata) -> None:
            await trio.sleep(rng.random())

        cluster.ledgers.before_write = slow_metadata

        async def nemesis() -> None:
            while True:
                await trio.sleep(rng.random())
                bookie = rng.choice(list(cluster.bookies.values()))
                kind = rng.choice(["stop", "refuse", "hold", "hang"])
                if kind == "stop":
                    bookie.stop()
                elif kind == "refuse":
                    bookie.refuse = lambda request: Rc.IO
                elif kind == "hold":
                    bookie.hold = True
                else:
                    bookie.hung = True
                await trio.sleep(3 * rng.random())
                bookie.down = bookie.hold = bookie.hung = False
                bookie.refuse = lambda request: None
                bookie.release(rng.shuffle)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(nemesis)
            for first in range(0, COUNT, 5):
                if isinstance(writer, AdvancedLedgerWriter):
                    writer.append(first, payloads(first, first + 4))
                else:
                    writer.append(payloads(first, first + 4))
                await trio.sleep(rng.random() * 0.3)
            await seen.until(COUNT - 1)
            nursery.cancel_scope.cancel()
        assert seen.payloads == payloads(0, COUNT - 1)
        firsts = [each.first_entry_id for each in writer.metadata.fragments]
        assert firsts == sorted(set(firsts)), "OnlyValidFragments"
        assert (len(firsts) == 1) or not settings.get("disable_ensemble_change")


@pytest.mark.bookies(4)
async def test_nothing_is_confirmed_while_the_metadata_is_being_changed_though_the_others_make_an_ack_quorum(
    cluster: FakeCluster, client: LedgerClient
) -> None:
    """The new fragment begins at LAC + 1: if the LAC moved, entries would be on bookies that never received them."""
    writer, seen = await begun(client, (3, 3, 2))

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        await trio.sleep(5)

    cluster.ledgers.before_write = before_write
    failing, *others = cluster.members(writer)
    for bookie in others:
        bookie.hold = True
    failing.hold = True
    writer.append(payloads(0, 3))
    failing.stop()
    await trio.sleep(1)
    for bookie in others:
        bookie.hold = False
        bookie.release()
    await trio.sleep(2)
    assert seen.ranges == []
    await seen.until(3)
    [fragment] = writer.metadata.fragments
    assert all(3 in bookie.entries[writer.ledger_id] for bookie in cluster.of(fragment.bookies))
