from __future__ import annotations

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import (
    BookieRefusedError,
    BookieUnavailableError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerWriteError,
)
from quire.metadata.ledgers import LedgerState
from quire.wire.bookkeeper.entry import Digest, DigestType, read_header
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, begun, payloads, total
from tests.unit.ledger.reads import read_all

PROTOCOLS = pytest.mark.parametrize("protocol", ["v2", "v3"])


# --- waiting for confirmations


async def test_an_entry_may_be_written_and_waited_for(client: LedgerClient) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    assert [await writer.write(each) for each in payloads(0, 4)] == list(range(5))
    await writer.wait_confirmed(2)
    await writer.close()
    assert await read_all(await client.open(writer.ledger_id, recover=False)) == payloads(0, 4)


@pytest.mark.bookies(1)
async def test_callbacks_and_waiting_go_together(client: LedgerClient) -> None:
    writer = await client.create()
    await writer.write(b"first")
    seen = Confirmations(writer)
    async with trio.open_nursery() as nursery:
        for entry_id in (1, 3, 2):
            nursery.start_soon(writer.wait_confirmed, entry_id)
        writer.append(payloads(1, 3))
    assert seen.confirmed == [1, 2, 3]


@pytest.mark.parametrize("way", ["fenced", "closed", "closed with nothing under way"])
@pytest.mark.bookies(1)
async def test_who_waits_for_what_will_never_be_confirmed_is_told_why(way, cluster, client):
    bookie = cluster.bookie
    bookie.hold = way == "closed"
    writer = await client.create()
    kind = LedgerFencedError if way == "fenced" else LedgerClosedError
    async with trio.open_nursery() as nursery:
        if way == "fenced":
            bookie.refuse = lambda request: Rc.FENCED
        elif way == "closed":
            nursery.start_soon(_after, 1, writer.close)
        else:
            nursery.start_soon(_after, 1, writer.close)
            await raises(kind, writer.wait_confirmed(0))
            return
        await raises(kind, writer.write(b"never"))


async def _after(seconds: float, what) -> None:
    await trio.sleep(seconds)
    await what()


# --- deferred syncs and force


@PROTOCOLS
async def test_with_deferred_syncs_the_lac_moves_only_with_a_force(protocol: str) -> None:
    cluster = FakeCluster(3)
    async with cluster.client(protocol=protocol) as client:
        writer, seen = await begun(client, (3, 3, 2), deferred_sync=True, entries=5)
        assert (writer.last_confirmed, writer.last_add_confirmed) == (4, -1)
        await writer.force()
        assert writer.last_add_confirmed == 4
        assert [bookie.forces for bookie in cluster.bookies.values()] == [1, 1, 1], "all of the ensemble"
        await seen.write(5, 6)
        assert writer.last_add_confirmed == 4
        bookie = cluster.members(writer)[0]
        entries = bookie.entries[writer.ledger_id]
        assert [read_header(entries[each]).lac for each in (0, 4, 5, 6)] == [-1, -1, 4, 4]
        assert bookie.deferred[writer.ledger_id] == {5, 6}


async def test_a_ledger_with_deferred_syncs_is_closed_at_what_was_forced() -> None:
    for forced in (False, True):
        cluster = FakeCluster(2)
        async with cluster.client() as client:
            writer, seen = await begun(client, (2, 2, 2), deferred_sync=True)
            await seen.write(0, 4)
            if forced:
                await writer.force()
            await seen.write(5, 6)
            await writer.close()
            metadata = await cluster.metadata(writer.ledger_id)
            assert metadata.state is LedgerState.CLOSED
            assert metadata.last_entry_id == (4 if forced else -1)
            assert metadata.length == (total(0, 4) if forced else 0)


@pytest.mark.bookies(1)
async def test_a_force_covers_what_was_confirmed_before_it_began(cluster: FakeCluster, client: LedgerClient) -> None:
    bookie = cluster.bookie
    writer, _ = await begun(client, deferred_sync=True, entries=2)
    bookie.hold = True
    writer.append(payloads(2, 3))
    await writer.force()
    assert writer.last_add_confirmed == 1
    bookie.release()
    await writer.wait_confirmed(3)
    assert writer.last_add_confirmed == 1, "entries 2 and 3 came after"
    await writer.close()
    metadata = await cluster.metadata(writer.ledger_id)
    assert (metadata.last_entry_id, metadata.length) == (1, total(0, 1))


async def test_a_force_that_one_bookie_refuses_moves_nothing_and_may_be_tried_again(cluster, client):
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, deferred_sync=True)
    await writer.force()
    assert not any(bookie.forces for bookie in cluster.bookies.values()), "there is nothing to force"
    await writer.write(b"entry")
    sick = cluster.members(writer)[2]
    sick.force_rc = Rc.IO
    await raises(BookieRefusedError, writer.force(), "IO")
    assert writer.last_add_confirmed == -1
    sick.force_rc = Rc.OK
    await writer.force()
    assert writer.last_add_confirmed == 0


async def test_a_bookie_that_is_lost_with_entries_not_forced_ends_the_writer() -> None:
    """The bookie may have lost acknowledged entries, and a force after its restart would not reveal that."""
    for forced in (False, True):
        cluster = FakeCluster(4)
        async with cluster.client() as client:
            writer, seen = await begun(client, (3, 3, 2), deferred_sync=True, entries=4)
            if forced:
                await writer.force()
            cluster.members(writer)[1].crash()
            if forced:
                await writer.write(b"goes on")
                continue
            error = await seen.until_failed()
            assert type(error) is LedgerWriteError
            assert "defers syncs" in str(error)
            await raises(LedgerWriteError, writer.force())
            assert len((await cluster.metadata(writer.ledger_id)).fragments) == 1, "no ensemble change"


@pytest.mark.bookies(2)
async def test_a_writer_without_deferred_syncs_may_force_too(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=1)
    await writer.write(b"entry")
    await writer.force()
    assert writer.last_add_confirmed == 0
    cluster.members(writer)[0].stop()
    await raises(BookieUnavailableError, writer.force())


# --- explicit LAC


@PROTOCOLS
async def test_a_writer_that_has_become_silent_tells_its_lac_once(protocol: str) -> None:
    cluster = FakeCluster(3)
    async with cluster.client(protocol=protocol, explicit_lac_interval_s=2) as client:
        writer, seen = await begun(client, (3, 2, 2), digest_type=DigestType.HMAC, password=b"secret")
        digest = Digest(DigestType.HMAC, b"secret")
        await seen.write(0, 3)
        ensemble = cluster.members(writer)
        assert not any(bookie.lacs for bookie in ensemble)
        await trio.sleep(3)
        told = [bookie for bookie in ensemble if bookie.lacs]
        assert told == [ensemble[0], ensemble[1]], "the write set of entry 3"
        for bookie in told:
            assert digest.open_lac(writer.ledger_id, bookie.lacs[writer.ledger_id]) == 3
            bookie.lacs.clear()
        await trio.sleep(10)
        assert not any(bookie.lacs for bookie in ensemble), "it has not moved since"


@pytest.mark.bookies(1, explicit_lac_interval_s=2)
async def test_a_lac_that_entries_carry_is_not_told_again(cluster: FakeCluster, client: LedgerClient) -> None:
    bookie = cluster.bookie
    writer = await client.create()
    await writer.write(b"first")
    bookie.hold = True
    writer.append([b"second"])
    await trio.sleep(5)
    assert bookie.lacs == {}, "the second entry carries LAC 0"
    bookie.release()
    await trio.sleep(5)
    assert bookie.lacs


@pytest.mark.bookies(explicit_lac_interval_s=1, read_timeout_s=2)
async def test_a_bookie_that_does_not_take_the_lac_does_no_harm(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.write(b"entry")
    first, second, third = cluster.members(writer)
    first.stop()
    second.hung = True
    await trio.sleep(5)
    assert third.lacs
    third.lacs.clear()
    await trio.sleep(5)
    assert third.lacs, "one of three is no ack quorum, so it is told again"
    assert writer.error is None
