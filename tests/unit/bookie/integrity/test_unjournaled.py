"""A bookie with journalWriteData=false: fast while it lives, in limbo after it was killed, whole again by the others.

Covers bookie/adds.py, bookie/directories/forces.py, bookie/limbo/boot.py, losses.py.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator

import pytest

from bookie.errors import CookieMismatchError
from bookie.sessions.session import BookieSession
from quire.servers.bookie.config import BOOKIE
from quire.service.errors import ConfigError
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines.world import Universe
from tests.support.waiting import until
from tests.unit.bookie.build import Client, entry
from tests.unit.bookie.integrity.rig import CONFIG, IntegrityCluster, Member, integrity_cluster


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


async def written(cluster: IntegrityCluster, *, count: int = 6) -> tuple[int, Member]:
    """Write a ledger to three members, of which the first has no journal of entries; return its id and that member."""
    members = await cluster.begin("a", "b", "c", config=CONFIG)
    first = members[0]
    await first.stop()
    first.set(journal_write=False)
    await first.start()
    ledger_id = await cluster.ledger(*members)
    for member in members:
        await member.add(ledger_id, count)
    return ledger_id, first


def journal_of(member: Member) -> bytes:
    disk = member.host.disk
    return b"".join(disk.read(path) for path in disk.paths() if path.endswith(".txn"))


async def test_entries_are_acknowledged_and_read_without_a_journal(cluster: IntegrityCluster) -> None:
    ledger_id, member = await written(cluster)
    await Client(member.bookie).holds(ledger_id, range(6))
    assert b"payload of" not in journal_of(member)
    assert b"payload of" in journal_of(cluster.members["b"])


async def test_what_a_recovery_writes_is_in_the_journal_all_the_same(cluster: IntegrityCluster) -> None:
    ledger_id, member = await written(cluster)
    client = Client(member.bookie)
    assert await client.add(ledger_id, 6, flags=v2.RECOVERY_ADD) == v2.AddAcks(Rc.OK, ledger_id, 6, 6)
    assert entry(ledger_id, 6) in journal_of(member)


@pytest.mark.parametrize("lose_unsynced", [False, True])
async def test_after_a_kill_nothing_is_denied_until_everything_is_back(
    lose_unsynced: bool, cluster: IntegrityCluster
) -> None:
    ledger_id, member = await written(cluster)
    await member.kill(lose_unsynced=lose_unsynced)
    member.checks = False
    await member.start()
    client = Client(member.bookie)
    for entry_id in (0, 5, 6, -1):
        assert (await client.read(ledger_id, entry_id)).rc == Rc.UNKNOWN_LEDGER_STATE
    await member.stop()
    member.checks = True
    await member.start()
    bookie = member.bookie
    await until(lambda: not bookie.storage.limbo.ledgers(), within=600)
    await Client(bookie).holds(ledger_id, range(6))
    # The next kill takes what was written since the last flush, and nothing that was copied back.
    await member.kill(lose_unsynced=True)
    await member.start()
    await Client(member.bookie).holds(ledger_id, range(6))


async def test_a_stop_loses_nothing(cluster: IntegrityCluster) -> None:
    ledger_id, member = await written(cluster)
    await member.stop()
    member.checks = False
    await member.start()
    assert not member.bookie.storage.limbo.ledgers()
    await Client(member.bookie).holds(ledger_id, range(6))


@pytest.mark.expect_error("last checkpoint failed")
async def test_a_stop_that_could_not_write_everything_is_a_loss(cluster: IntegrityCluster, monkeypatch) -> None:
    ledger_id, member = await written(cluster)

    async def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(member.bookie.storage, "flush", full)
    await member.stop()
    member.checks = False
    await member.start()
    assert (await Client(member.bookie).read(ledger_id, 5)).rc == Rc.UNKNOWN_LEDGER_STATE


@pytest.mark.parametrize("checked", [True, False])
async def test_a_killed_run_is_a_loss_whatever_the_configuration_is_now(
    checked: bool, cluster: IntegrityCluster
) -> None:
    ledger_id, member = await written(cluster)
    await member.kill()
    member.set(journal_write=True)
    member.checks = False
    if not checked:
        member.forbid_losses()
        with pytest.raises(CookieMismatchError, match="it was not shut down, with journalWriteData=false"):
            await member.start()
        member.allow_losses()
    await member.start()
    assert (await Client(member.bookie).read(ledger_id, 5)).rc == Rc.UNKNOWN_LEDGER_STATE


async def test_a_bookie_of_the_original_that_was_killed_without_a_journal_is_in_limbo(
    cluster: IntegrityCluster,
) -> None:
    ledger_id, member = await written(cluster)
    await member.stop()
    disk = member.host.disk
    disk.add("/ledgers/current/DIRTY")
    disk.sync_names("/ledgers/current")
    member.checks = False
    await member.start()
    assert ledger_id in member.bookie.storage.limbo


async def test_a_force_is_answered_when_the_entries_are_in_an_entry_log(cluster: IntegrityCluster) -> None:
    ledger_id, member = await written(cluster)
    answers: list[Buffer] = []
    session = BookieSession(member.bookie, answers.extend)
    session.receive([v3.force_request(1, ledger_id)])
    await until(lambda: bool(answers))
    disk = member.host.disk
    assert any(
        entry(ledger_id, 5) in disk.read(path)
        for path in disk.paths()
        if path.endswith(".log") and path.startswith("/ledgers/current/")
    )


def test_it_is_refused_without_the_check_that_brings_entries_back() -> None:
    with pytest.raises(ConfigError, match="journalWriteData=false needs dataIntegrityChecking=true"):
        BOOKIE.build({"journalWriteData": False})
    assert not BOOKIE.build({"journalWriteData": False, "dataIntegrityChecking": True}).bookie.journal_write
