"""Ledgers of which several members, or all, are in limbo: what is known, what a reader gets, and how that ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from autorecovery.copying.peer_copies import PeerCopies
from quire.ledger.errors import LedgerReadError, LedgerRecoveryError, NoSuchEntryError
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines.world import Universe
from tests.support.waiting import until
from tests.unit.bookie.build import Client
from tests.unit.bookie.integrity.rig import IntegrityCluster, Member, integrity_cluster


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


async def returns_empty(member: Member) -> None:
    await member.kill()
    member.wipe()
    await member.start()


@pytest.mark.parametrize(
    ("members", "ack_quorum", "in_limbo", "recovers"),
    [(2, 2, 1, True), (2, 2, 2, False), (3, 2, 1, True), (3, 2, 2, False), (3, 3, 2, True), (3, 3, 3, False)],
)
async def test_an_open_ledger_is_recovered_while_fewer_members_than_its_ack_quorum_are_in_limbo(
    members: int, ack_quorum: int, in_limbo: int, recovers: bool, cluster: IntegrityCluster
) -> None:
    all_members = await cluster.begin(*"abc"[:members])
    ledger_id = await cluster.ledger(*all_members, ack_quorum=ack_quorum)
    for member in all_members:
        await member.add(ledger_id, 4)
    for member in all_members[:in_limbo]:
        member.checks = False
        await returns_empty(member)
    async with cluster.client() as client:
        if not recovers:
            with pytest.raises(LedgerRecoveryError):
                await client.open(ledger_id, password=b"secret", recover=True)
            return
        reader = await client.open(ledger_id, password=b"secret", recover=True)
        assert reader.last_entry_id == 3
        reader.close()


async def test_a_ledger_that_is_deleted_while_it_is_copied_back_is_not_lost(
    cluster: IntegrityCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = await cluster.begin("a", "b")
    ledger_id = await cluster.ledger(*members)
    for member in members:
        await member.add(ledger_id, 4)
    lossy = members[1]
    async with cluster.client() as client:
        (await client.open(ledger_id, password=b"secret", recover=True)).close()

        async def dropped(self: PeerCopies, ledger: int, metadata: object, entries: object) -> dict[int, bytes]:
            await client.delete(ledger)
            raise NoSuchEntryError(ledger, 0)

        monkeypatch.setattr(PeerCopies, "read", dropped)
        await lossy.kill()
        lossy.wipe()
        await lossy.start()
        await until(lambda: not lossy.bookie.storage.limbo.ledgers(), within=600)
        assert lost(lossy) == []


@pytest.mark.expect_error("an entry is lost")
async def test_a_closed_ledger_that_all_members_lost_is_an_error_and_fails_every_read_until_it_is_deleted(
    cluster: IntegrityCluster, log_events
) -> None:
    members = await cluster.begin("a", "b")
    ledger_id = await cluster.ledger(*members)
    for member in members:
        await member.add(ledger_id, 4)
        member.set(gc_wait_ms=1000)
    async with cluster.client() as client:
        (await client.open(ledger_id, password=b"secret", recover=True)).close()
        for member in members:
            await member.kill()
            member.wipe()
        for member in members:
            await member.start()
        assert (await Client(members[0].bookie).read(ledger_id, 0)).rc == Rc.UNKNOWN_LEDGER_STATE
        reader = await client.open(ledger_id, password=b"secret", recover=False)
        with pytest.raises(LedgerReadError) as raised:
            await reader.read(0, 3)
        assert not isinstance(raised.value, NoSuchEntryError), "nobody may take it for an entry that never was"
        reader.close()
        await until(lambda: all(each.integrity and each.integrity.progress.rounds > 1 for each in members), within=600)
        assert all(each.bookie.storage.limbo.ledgers() == [ledger_id] for each in members)
        assert [lost(each) for each in members] == [[ledger_id], [ledger_id]]
        told = [event for event in log_events if event["event"].startswith("an entry is lost")]
        assert [event["ledger"] for event in told] == [ledger_id] * 2, "once from each bookie"
        await client.delete(ledger_id)
    for member in members:
        await until(lambda at=member: not at.bookie.storage.limbo.needs_check(), within=600)  # type: ignore[misc]
        assert not member.bookie.storage.limbo.ledgers()
        assert lost(member) == []


@pytest.mark.expect_error("an entry is lost")
async def test_lost_entries_are_found_again_when_an_image_of_one_disk_is_brought_back(cluster: IntegrityCluster):
    members = await cluster.begin("a", "b")
    ledger_id = await cluster.ledger(*members)
    for member in members:
        await member.add(ledger_id, 4)
    async with cluster.client() as client:
        (await client.open(ledger_id, password=b"secret", recover=True)).close()
    await members[1].stop()
    image = members[1].image()
    await members[1].start()
    for member in members:
        await member.kill()
        member.wipe()
    for member in members:
        await member.start()
    await until(lambda: all(lost(each) == [ledger_id] for each in members), within=600)
    await members[1].kill()
    members[1].put_back(image)
    await members[1].start()
    await until(lambda: all(not each.bookie.storage.limbo.ledgers() for each in members), within=600)
    assert [lost(each) for each in members] == [[], []]
    for member in members:
        await Client(member.bookie).holds(ledger_id, range(4))


def lost(member: Member) -> list[int]:
    """Return the ledgers of which it knows that no member has some entry."""
    assert member.integrity is not None
    return list(member.integrity.progress.lost)
