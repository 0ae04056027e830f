"""A bookie loses its disk and returns: no arrangement loses a confirmed entry, and it gets its copies back.

Covers bookie/limbo, bookie/integrity, autorecovery/copying/peer_copies.py, quire/servers/bookie/peers.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import trio

from bookie.errors import CookieMismatchError
from quire.ledger.errors import LedgerRecoveryError
from quire.metadata import bookies
from quire.metadata.ledgers import LedgerState
from quire.wire.bookkeeper.v2 import AddAcks, Rc
from simulation.machines.world import Universe
from tests.support.waiting import until
from tests.unit.bookie.build import Client, entry
from tests.unit.bookie.integrity.rig import CONFIG, IntegrityCluster, Member, integrity_cluster

NAMES = ("a", "b", "c")
ARRANGEMENTS = [
    (holders, wiped, slow) for holders in ("ab", "ac", "bc") for wiped in holders for slow in permutations(NAMES)
]
"""Two members that have the last confirmed entry, the one of them that is emptied, and how slowly the members answer:
all orders of their answers."""

COOKIES = ("kept", "deleted", "deleted, all are closed, no check")
"""State of the cookie when the bookie starts again. In every run, each step meets one of them; with `--full` all."""


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


async def confirmed_by(cluster: IntegrityCluster, holders: str) -> int:
    """Write a ledger whose last entry, 5, only two of three members have: it is confirmed. Return its id."""
    members = await cluster.begin(*NAMES)
    ledger_id = await cluster.ledger(*members)
    for member in members:
        await member.add(ledger_id, 6 if member.name in holders else 5)
    return ledger_id


async def returns_empty(member: Member, *, checks: bool = True) -> None:
    await member.kill()
    member.wipe()
    member.checks = checks
    await member.start()


async def out_of_limbo(member: Member) -> None:
    await until(lambda: not member.bookie.storage.limbo.ledgers(), within=600)


@pytest.mark.parametrize(("holders", "wiped", "slow"), ARRANGEMENTS)
async def test_no_arrangement_of_a_wiped_member_loses_a_confirmed_entry(holders, wiped, slow, cluster) -> None:
    ledger_id = await confirmed_by(cluster, holders)
    for place, name in enumerate(slow):
        cluster.members[name].host.slow(10.0**place)
    await returns_empty(cluster.members[wiped], checks=False)
    async with cluster.client() as client:
        reader = await client.open(ledger_id, password=b"secret", recover=True)
        assert reader.last_entry_id == 5


@pytest.mark.parametrize("wiped", NAMES)
async def test_a_wiped_member_gets_its_copies_back_at_once(wiped: str, cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members[wiped]
    await returns_empty(member)
    await out_of_limbo(member)
    assert (await cluster.metadata(ledger_id)).last_entry_id == 5
    await Client(member.bookie).holds(ledger_id, range(6))
    # They are on its disk, and the check is over.
    await member.kill(lose_unsynced=True)
    await member.start()
    assert not member.bookie.storage.limbo.ledgers()
    assert not member.bookie.storage.limbo.needs_check()
    await Client(member.bookie).holds(ledger_id, range(6))


async def test_what_is_in_limbo_is_unknown_not_absent_and_fenced(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    await returns_empty(member, checks=False)
    client = Client(member.bookie)
    for entry_id in (0, 5, 6, -1):
        assert (await client.read(ledger_id, entry_id)).rc == Rc.UNKNOWN_LEDGER_STATE
    added = await client.add(ledger_id, 6)
    assert isinstance(added, AddAcks)
    assert added.rc == Rc.FENCED
    assert (await client.fence(ledger_id)).rc == Rc.UNKNOWN_LEDGER_STATE
    assert (await client.read(ledger_id + 1, 0)).rc == Rc.NO_LEDGER


async def test_limbo_survives_a_power_cut_and_a_stop(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    await returns_empty(member, checks=False)
    await member.kill(lose_unsynced=True)
    await member.start()
    assert (await Client(member.bookie).read(ledger_id, 0)).rc == Rc.UNKNOWN_LEDGER_STATE
    await member.stop()
    await member.start()
    assert (await Client(member.bookie).read(ledger_id, 0)).rc == Rc.UNKNOWN_LEDGER_STATE
    assert member.bookie.storage.limbo.needs_check()


async def test_two_wiped_members_decide_nothing(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    for name in "ab":
        await returns_empty(cluster.members[name], checks=False)
    async with cluster.client() as client:
        with pytest.raises(LedgerRecoveryError):
            await client.open(ledger_id, password=b"secret", recover=True)
    assert (await cluster.metadata(ledger_id)).state is not LedgerState.CLOSED


@pytest.mark.parametrize(
    ("crash_after", "cookie"),
    [
        pytest.param(step, cookie, marks=() if (place + number) % len(COOKIES) == 0 else pytest.mark.full)
        for place, step in enumerate([*range(1, 12), *range(12, 60, 5)])
        for number, cookie in enumerate(COOKIES)
    ],
)
async def test_a_crash_at_any_step_of_the_return_leaves_limbo_or_all_copies(crash_after: int, cookie, cluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    if cookie.endswith("check"):
        async with cluster.client() as client:
            (await client.open(ledger_id, password=b"secret", recover=True)).close()
        member.forbid_losses()
    await member.kill()
    member.wipe()
    if cookie != "kept":
        await bookies.delete_cookie(cluster.store, member.id)
    await member.start_and_crash(crash_after)
    await member.start()
    client = Client(member.bookie)
    for entry_id in range(6):
        answer = await client.read(ledger_id, entry_id)
        assert answer.rc == Rc.UNKNOWN_LEDGER_STATE or bytes(answer.entry) == entry(ledger_id, entry_id)
    await out_of_limbo(member)
    await client.holds(ledger_id, range(6))


async def test_an_entry_that_no_other_member_has_keeps_its_ledger_in_limbo(
    cluster: IntegrityCluster, expect_error
) -> None:
    members = await cluster.begin(*NAMES)
    ledger_id = await cluster.ledger(members[0], ack_quorum=1)
    kept_id = await cluster.ledger(*members)
    await members[0].add(ledger_id, 3)
    for member in members:
        await member.add(kept_id, 3)
    async with cluster.client() as client:
        for each in (ledger_id, kept_id):
            (await client.open(each, password=b"secret", recover=True)).close()
    expect_error("an entry is lost")
    await returns_empty(members[0])
    await until(lambda: kept_id not in members[0].bookie.storage.limbo, within=600)
    assert members[0].bookie.storage.limbo.ledgers() == [ledger_id]
    await Client(members[0].bookie).holds(kept_id, range(3))
    assert (await Client(members[0].bookie).read(ledger_id, 0)).rc == Rc.UNKNOWN_LEDGER_STATE


async def test_a_striped_ledger_gets_back_only_what_belongs_there(cluster: IntegrityCluster) -> None:
    members = await cluster.begin("a", "b", "c", "d")
    ledger_id = await cluster.ledger(*members, write_quorum=2, ack_quorum=2)
    for index, member in enumerate(members):
        for entry_id in range(50):
            if (index - entry_id) % 4 < 2:
                await Client(member.bookie).add(ledger_id, entry_id)
    member = members[2]
    await returns_empty(member)
    await out_of_limbo(member)
    assert list(member.bookie.storage.reader.entry_ids(ledger_id)) == [e for e in range(50) if (2 - e) % 4 < 2]


async def test_without_the_check_an_empty_bookie_is_refused_even_if_its_cookie_was_deleted(cluster) -> None:
    await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    await member.kill()
    member.wipe()
    member.forbid_losses()
    with pytest.raises(CookieMismatchError, match="is empty: it was wiped"):
        await member.start()
    await bookies.delete_cookie(cluster.store, member.id)
    with pytest.raises(CookieMismatchError, match=r"its data and its cookie were deleted.*dataIntegrityChecking=true"):
        await member.start()


async def test_an_empty_bookie_whose_cookie_was_deleted_is_in_limbo_too(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    await member.kill()
    member.wipe()
    await bookies.delete_cookie(cluster.store, member.id)
    await member.start()
    await out_of_limbo(member)
    await Client(member.bookie).holds(ledger_id, range(6))
    assert await bookies.read_cookie(cluster.store, member.id) is not None


@pytest.mark.parametrize("folder", ["/journal", "/ledgers"])
async def test_one_emptied_folder_is_a_loss_too(folder: str, cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    await member.kill()
    member.empty(folder)
    await member.start()
    await out_of_limbo(member)
    await Client(member.bookie).holds(ledger_id, range(6))
    await member.kill(lose_unsynced=True)
    await member.start()
    assert not member.bookie.storage.limbo.ledgers()


async def test_an_older_image_of_the_disk_is_a_loss(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "bc")
    member = cluster.members["a"]
    await member.stop()
    image = member.image()
    await member.start()
    await Client(member.bookie).add(ledger_id, 5)
    await member.kill()
    member.put_back(image)
    member.forbid_losses()
    with pytest.raises(CookieMismatchError, match="is older than bookie a:3181 was"):
        await member.start()
    member.allow_losses()
    await member.start()
    await out_of_limbo(member)
    await Client(member.bookie).holds(ledger_id, range(6))


@pytest.mark.parametrize("lose_unsynced", [False, True])
async def test_a_kill_or_a_power_cut_with_an_intact_journal_is_no_loss(lose_unsynced: bool, cluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    for _ in range(2):
        await member.kill(lose_unsynced=lose_unsynced)
        await member.start()
        assert not member.bookie.storage.limbo.ledgers()
        assert (await Client(member.bookie).read(ledger_id, 6)).rc == Rc.NO_ENTRY
        await Client(member.bookie).holds(ledger_id, range(6))


async def test_limbo_does_not_end_before_everything_is_copied(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    async with cluster.client() as client:
        (await client.open(ledger_id, password=b"secret", recover=True)).close()
    member = cluster.members["a"]
    for name in "bc":
        await cluster.members[name].stop()
    await returns_empty(member)
    integrity = member.integrity
    assert integrity is not None
    await until(lambda: integrity.progress.rounds > 0, within=600)
    assert integrity.progress.last_failure
    await member.bookie.checkpoint()
    await member.kill(lose_unsynced=True)
    await member.start()
    assert (await Client(member.bookie).read(ledger_id, 0)).rc == Rc.UNKNOWN_LEDGER_STATE
    await cluster.members["b"].start()
    await out_of_limbo(member)
    await Client(member.bookie).holds(ledger_id, range(6))


async def test_what_an_older_image_still_has_is_no_vote_on_the_end_of_a_ledger(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "bc")
    member = cluster.members["a"]
    await member.stop()
    image = member.image()
    await member.start()
    await Client(member.bookie).add(ledger_id, 5)
    await member.kill()
    member.put_back(image)
    member.checks = False
    await member.start()
    client = Client(member.bookie)
    await client.holds(ledger_id, range(5))
    for entry_id in (5, -1):
        assert (await client.read(ledger_id, entry_id)).rc == Rc.UNKNOWN_LEDGER_STATE


@pytest.mark.expect_error("damaged part of the journal skipped")
@pytest.mark.parametrize("crash_after", [0, *range(1, 40, 3)])
async def test_a_skipped_part_of_the_journal_is_a_loss_whenever_the_start_crashes(crash_after: int, cluster) -> None:
    members = await cluster.begin(*NAMES)
    ledger_id = await cluster.ledger(*members)
    for entry_id in range(6):
        for member in members:
            await Client(member.bookie).add(ledger_id, entry_id)
    member = members[0]
    await member.kill()
    member.damage_journal(b"payload of %d:2" % ledger_id)
    member.set(skip_invalid_records=True)
    if crash_after:
        await member.start_and_crash(crash_after)
    await member.start()
    client = Client(member.bookie)
    answer = await client.read(ledger_id, 2)
    assert answer.rc == Rc.UNKNOWN_LEDGER_STATE or bytes(answer.entry) == entry(ledger_id, 2)
    await out_of_limbo(member)
    await client.holds(ledger_id, range(6))


@pytest.mark.parametrize(("restarts", "lost"), [(False, False), (True, True)])
async def test_without_journal_syncs_a_machine_that_restarted_is_a_loss_and_a_kill_is_not(
    restarts: bool, lost: bool, cluster: IntegrityCluster
) -> None:
    members = await cluster.begin(*NAMES)
    member = members[0]
    await member.stop()
    member.set(journal_sync=False)
    member.boots(b"the first boot")
    await member.start()
    ledger_id = await cluster.ledger(*members)
    for each in members:
        await each.add(ledger_id, 6)
    await member.kill(lose_unsynced=restarts)
    if restarts:
        member.boots(b"the second boot")
    member.checks = False
    await member.start()
    assert (ledger_id in member.bookie.storage.limbo) is lost


@pytest.mark.parametrize("folder", ["/journal", "/journal2", "/ledgers", "/ledgers2"])
async def test_one_emptied_folder_of_several_of_a_kind_is_a_loss_too(folder: str, cluster: IntegrityCluster) -> None:
    several = replace(
        CONFIG, journal_directories=("/journal", "/journal2"), ledger_directories=("/ledgers", "/ledgers2")
    )
    members = await cluster.begin(*NAMES, config=several)
    ledger_ids = [await cluster.ledger(*members) for _ in range(4)]
    for member in members:
        for ledger_id in ledger_ids:
            await member.add(ledger_id, 6)
    await members[0].bookie.checkpoint()
    for member in members:
        for ledger_id in ledger_ids:
            await Client(member.bookie).add(ledger_id, 6)
    member = members[0]
    await member.kill()
    member.empty(folder)
    member.checks = False
    await member.start()
    for ledger_id in ledger_ids:
        assert (await Client(member.bookie).read(ledger_id, 7)).rc == Rc.UNKNOWN_LEDGER_STATE
    await member.kill(lose_unsynced=True)
    member.checks = True
    await member.start()
    await out_of_limbo(member)
    for ledger_id in ledger_ids:
        await Client(member.bookie).holds(ledger_id, range(7))


async def test_a_folder_that_is_added_is_no_loss(cluster: IntegrityCluster) -> None:
    ledger_id = await confirmed_by(cluster, "ab")
    member = cluster.members["a"]
    await member.stop()
    member.set(ledger_directories=("/ledgers", "/more"), allow_storage_expansion=True)
    await member.start()
    assert not member.bookie.storage.limbo.ledgers()
    await Client(member.bookie).holds(ledger_id, range(6))
    await member.kill()
    await member.start()
    assert not member.bookie.storage.limbo.ledgers()


async def with_an_emptied_directory(cluster: IntegrityCluster) -> list[int]:
    """Write four closed ledgers on three members with two directories each; return their ids.

    Member "a" is down, its second directory is empty."""
    members = await cluster.begin(*NAMES, config=replace(CONFIG, ledger_directories=("/ledgers", "/ledgers2")))
    ledger_ids = [await cluster.ledger(*members) for _ in range(4)]
    for member in members:
        for ledger_id in ledger_ids:
            await member.add(ledger_id, 6)
    async with cluster.client() as client:
        for ledger_id in ledger_ids:
            (await client.open(ledger_id, password=b"secret", recover=True)).close()
    await members[0].bookie.checkpoint()
    await members[0].kill()
    members[0].empty("/ledgers2")
    return ledger_ids


def refused(member: Member, ledger_ids: list[int]) -> list[int]:
    """Return the ledgers whose directory has failed: some, and not all."""
    found = [each for each in ledger_ids if not member.bookie.is_usable(each)]
    assert 0 < len(found) < len(ledger_ids)
    return found


@pytest.mark.expect_error("ledger directory failed, refusing its ledgers until a restart")
async def test_a_failed_directory_keeps_its_ledgers_in_limbo_and_the_others_go_on(cluster: IntegrityCluster) -> None:
    ledger_ids = await with_an_emptied_directory(cluster)
    member, *others = cluster.members.values()
    for other in others:
        await other.stop()
    await member.start()
    bookie, integrity = member.bookie, member.integrity
    assert integrity is not None
    assert sorted(bookie.storage.limbo.ledgers()) == ledger_ids
    member.host.disk.folders.break_("/ledgers2")
    await until(lambda: any(bookie.directories.reasons), within=600)
    for other in others:
        await other.start()
    before = integrity.progress.rounds
    await until(lambda: integrity.progress.rounds > before + 1, within=600)
    assert sorted(bookie.storage.limbo.ledgers()) == refused(member, ledger_ids)
    await member.kill()
    member.host.disk.folders.mend("/ledgers2")
    await member.start()
    await out_of_limbo(member)
    for ledger_id in ledger_ids:
        await Client(member.bookie).holds(ledger_id, range(6))


@pytest.mark.expect_error("ledger directory failed, refusing its ledgers until a restart")
async def test_what_is_copied_into_a_directory_that_then_fails_stays_in_limbo(cluster: IntegrityCluster) -> None:
    ledger_ids = await with_an_emptied_directory(cluster)
    member = cluster.members["a"]
    member.checks = False
    await member.start()
    bookie, integrity = member.bookie, member.integrity
    assert integrity is not None
    settle = integrity.__class__._settle

    async def then_fails(*given: Any) -> bool:
        try:
            return await settle(*given)
        finally:
            if integrity.progress.entries == 6 * 2:
                member.host.disk.folders.break_("/ledgers2")
                await until(lambda: any(bookie.directories.reasons), within=600)

    with pytest.MonkeyPatch.context() as patch, trio.move_on_after(600):
        patch.setattr(integrity.__class__, "_settle", then_fails)
        await integrity.run()
    assert sorted(bookie.storage.limbo.ledgers()) == refused(member, ledger_ids)


async def test_a_flag_that_cannot_be_read_is_asked_for_again(cluster: IntegrityCluster) -> None:
    await cluster.begin(*NAMES, config=replace(CONFIG, ledger_directories=("/ledgers", "/ledgers2")))
    member = cluster.members["a"]
    await member.stop()
    member.checks = False
    await member.start()
    integrity = member.integrity
    assert integrity is not None
    member.host.disk.folders.break_("/ledgers2")
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(integrity.run)
            await until(lambda: bool(integrity.progress.last_failure))
            member.host.disk.folders.mend("/ledgers2")
    assert not integrity.progress.running
