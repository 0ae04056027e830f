"""Copies of single bookies: read, found bad, written."""

from __future__ import annotations

import pytest

from quire.ledger import LedgerClient
from quire.ledger.errors import BookieRefusedError, BookieTimeoutError, BookieUnavailableError
from quire.ledger.reading.copies import CopyFault, add_frames
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import FakeCluster, write

KEY = b"k" * 20


async def test_a_read_tells_the_good_copies_and_what_is_wrong_with_the_next() -> None:
    for batches in (True, False):
        cluster = FakeCluster(1)
        async with cluster.client() as client:
            ledger_id, _ = await write(client, 20, quorums=(1, 1, 1))
            [bookie] = cluster.bookies.values()
            bookie.batch_reads = batches
            copies = client.copies(ledger_id, await cluster.metadata(ledger_id))
            stored = bookie.entries[ledger_id]
            found, bad = await copies.read(bookie.bookie_id, range(20))
            assert (list(map(bytes, found)), bad) == ([stored[each] for each in range(20)], None)
            bookie.damage(ledger_id, 5)
            found, bad = await copies.read(bookie.bookie_id, range(2, 20))
            assert (len(found), bad and bad[:2]) == (3, (5, CopyFault.DAMAGED))
            stored.pop(2)
            _, bad = await copies.read(bookie.bookie_id, range(2, 20))
            assert bad is not None
            assert bad[:2] == (2, CopyFault.MISSING)
            every = await copies.bad_copies(bookie.bookie_id, range(20), count_max=20)
            assert [each[:2] for each in every] == [(2, CopyFault.MISSING), (5, CopyFault.DAMAGED)]
            assert len(await copies.bad_copies(bookie.bookie_id, range(20), count_max=1)) == 1


@pytest.mark.bookies(1)
async def test_a_copy_of_another_entry_is_damage(cluster: FakeCluster, client: LedgerClient) -> None:
    ledger_id, _ = await write(client, 3, quorums=(1, 1, 1))
    [bookie] = cluster.bookies.values()
    bookie.entries[ledger_id][1] = bookie.entries[ledger_id][2]
    copies = client.copies(ledger_id, await cluster.metadata(ledger_id))
    [bad] = await copies.bad_copies(bookie.bookie_id, [0, 1, 2], count_max=3)
    assert (bad.entry_id, bad.fault) == (1, CopyFault.DAMAGED)


@pytest.mark.bookies(1, read_timeout_s=1.0, add_timeout_s=1.0)
async def test_a_silent_bookie_is_unreachable_and_asked_no_further(cluster: FakeCluster, client: LedgerClient) -> None:
    ledger_id, _ = await write(client, 20, quorums=(1, 1, 1))
    [bookie] = cluster.bookies.values()
    copies = client.copies(ledger_id, await cluster.metadata(ledger_id))
    found, _ = await copies.read(bookie.bookie_id, range(3))
    bookie.hung = True
    every = await copies.bad_copies(bookie.bookie_id, range(20), count_max=20)
    assert [each.fault for each in every] == [CopyFault.UNREACHABLE]
    await raises(BookieTimeoutError, copies.write(bookie.bookie_id, range(3), found))
    bookie.stop()
    await raises(BookieUnavailableError, copies.write(bookie.bookie_id, range(3), found))


@pytest.mark.bookies(2)
async def test_copies_are_written_with_the_ledgers_key_over_a_fence(cluster: FakeCluster, client: LedgerClient) -> None:
    ledger_id, _ = await write(client, 20, quorums=(1, 1, 1))
    metadata = await cluster.metadata(ledger_id)
    [source] = cluster.of(metadata.fragments[0].bookies)
    [target] = [each for each in cluster.bookies.values() if each is not source]
    copies = client.copies(ledger_id, metadata)
    found, _ = await copies.read(source.bookie_id, range(20))
    target.fenced.add(ledger_id)
    await copies.write(target.bookie_id, range(20), found)
    assert target.entries[ledger_id] == source.entries[ledger_id]
    assert target.keys[ledger_id] == source.keys[ledger_id]
    target.refuse = lambda request: Rc.READ_ONLY
    await raises(BookieRefusedError, copies.write(target.bookie_id, range(20), found))


def test_frames_of_copies_are_whole_adds_of_recovery() -> None:
    small, big = b"s" * 60, b"b" * (v2.JOIN_MAX + 100)
    frames = add_frames([memoryview(each) for each in (small, small, big, small)], KEY, 36)
    assert [isinstance(each, tuple) for each in frames] == [False, True, False]
    joined = b"".join([b"".join(each) if isinstance(each, tuple) else bytes(each) for each in frames])
    assert joined == b"".join(
        [v2.add_head(len(each), KEY, v2.RECOVERY_ADD) + each for each in (small, small, big, small)]
    )
