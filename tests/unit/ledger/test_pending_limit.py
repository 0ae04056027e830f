"""The unconfirmed bytes of a writer are bounded, whatever its bookies and the metadata service do."""

from __future__ import annotations

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import LedgerClosedError, NotEnoughBookiesError, TooManyPendingError
from quire.ledger.writing.advanced_writer import AdvancedLedgerWriter
from tests.support.refusals import raises, refuses
from tests.unit.ledger.fake_bookie import FakeCluster, begun

KB = 1024
RUN = [b"x" * KB] * 10


@pytest.mark.bookies(4, pending_bytes_max=100 * KB)
async def test_pending_bytes_are_bounded_while_a_bookie_is_replaced_and_the_metadata_is_away(cluster, client):
    writer, seen = await begun(client, (3, 3, 2))
    writer.append(RUN)
    await seen.until(9)
    cluster.bookies[writer.metadata.fragments[0].bookies[0]].stop()
    cluster.ledgers.failures = 5
    while writer.pending_bytes <= 100 * KB:
        writer.append(RUN)
    appended = writer.last_pushed + 1
    refuses(TooManyPendingError, lambda: writer.append(RUN), "are not confirmed yet, 102400 are allowed")
    assert writer.pending_bytes < 120 * KB
    await writer.wait_room()
    assert writer.append(RUN) == appended, "the refused one was not sent"
    await seen.until(appended + 9)
    assert cluster.ledgers.failures == 0
    assert len(writer.metadata.fragments) == 2


async def test_write_waits_until_there_is_room() -> None:
    cluster = FakeCluster(1)
    bookie = cluster.bookie
    bookie.hold = True
    async with cluster.client(pending_bytes_max=10 * KB) as client, trio.open_nursery() as nursery:
        writer = await client.create()
        for _ in range(100):
            nursery.start_soon(writer.write, b"x" * KB)
        await trio.testing.wait_all_tasks_blocked()
        assert writer.last_pushed < 11
        bookie.hold = False
        bookie.release()
        await writer.wait_confirmed(99)


@pytest.mark.bookies(1, pending_bytes_max=KB, add_timeout_s=5)
async def test_who_waits_for_room_hears_of_the_end_of_the_writer(cluster: FakeCluster, client: LedgerClient) -> None:
    cluster.bookie.hold = True
    writer = await client.create()
    writer.append(RUN)
    await raises(NotEnoughBookiesError, writer.wait_room())
    refuses(NotEnoughBookiesError, lambda: writer.append(RUN))
    await writer.close()
    other = await client.create()
    other.append(RUN)
    await other.close()
    refuses(LedgerClosedError, lambda: other.append(RUN))


async def test_an_entry_that_fills_a_gap_is_taken_by_a_full_writer() -> None:
    cluster = FakeCluster(1)
    async with cluster.client(pending_bytes_max=5 * KB) as client, trio.open_nursery() as nursery:
        writer: AdvancedLedgerWriter = await client.create_adv()
        writer.append(1, RUN)
        refuses(TooManyPendingError, lambda: writer.append(20, RUN))
        nursery.start_soon(writer.write, 11, b"eleven")
        await trio.testing.wait_all_tasks_blocked()
        assert writer.last_pushed == 10
        writer.append(0, [b"zero"])
        await writer.wait_confirmed(11)


@pytest.mark.bookies(1, pending_bytes_max=None)
async def test_there_is_no_limit_where_none_is_wanted(cluster: FakeCluster, client: LedgerClient) -> None:
    cluster.bookie.hold = True
    writer = await client.create()
    for _ in range(100):
        writer.append([b"x" * (1 << 20)])
    assert writer.pending_bytes > 100 << 20
