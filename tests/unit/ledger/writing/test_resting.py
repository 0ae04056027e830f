"""quire.ledger.writing.resting: idle writers give their appender back, and go on as if they had kept it."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from quire.ledger import LedgerClient, LedgerWriter
from quire.ledger.errors import LedgerClosedError, LedgerFencedError
from quire.ledger.writing.appender import Appender
from quire.ledger.writing.resting import RestingAppender
from quire.wire.bookkeeper.entry import read_header
from quire.wire.bookkeeper.v2 import Rc
from tests.support.waiting import until
from tests.unit.ledger.fake_bookie import FakeCluster, begun, payloads, total

WRITERS = 200
BYTES_MIN = 800
"""Memory that a resting writer gives back: it was 897 bytes on Python 3.11."""


def rests(writer: LedgerWriter) -> bool:
    return isinstance(writer._appender, RestingAppender)


async def idle(writer: LedgerWriter) -> None:
    """Wait until every member has answered and no deadline is watched."""
    appender = writer._appender
    assert isinstance(appender, Appender)
    await until(lambda: appender.is_idle)


@pytest.mark.parametrize("quorum", [(1, 1, 1), (3, 3, 2), (3, 2, 2)])
@pytest.mark.bookies(3)
async def test_a_writer_that_rested_goes_on_with_the_next_id_lac_and_length(
    quorum: tuple[int, int, int], cluster: FakeCluster, client: LedgerClient
) -> None:
    writer, seen = await begun(client, quorum)
    for first in (0, 5, 10):
        assert writer.append(payloads(first, first + 4)) == first
        await seen.until(first + 4)
        await idle(writer)
        writer.rest()
        assert rests(writer)
        writer.rest()  # changes nothing
        assert (writer.last_confirmed, writer.last_pushed, writer.last_add_confirmed) == (first + 4,) * 3
        assert (writer.length, writer.pending_bytes, writer.failed_bookies) == (total(0, first + 4), 0, {})
        assert [bytes(each) for each in await writer.read(0, first + 4, size_max=1 << 20)] == payloads(0, first + 4)
    assert seen.payloads == payloads(0, 14)
    await writer.close()
    assert (writer.metadata.last_entry_id, writer.metadata.length) == (14, total(0, 14))
    headers = [read_header(entry) for bookie in cluster.members(writer) for entry in bookie.entries[0].values()]
    assert {each.lac for each in headers if each.entry_id == 12} == {9}


@pytest.mark.bookies(1)
async def test_a_writer_with_an_unconfirmed_entry_does_not_rest(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client)
    cluster.bookie.hold = True
    writer.append(payloads(0, 0))
    writer.rest()
    assert not rests(writer)
    cluster.bookie.release()
    await seen.until(0)


@pytest.mark.bookies(3)
async def test_a_writer_does_not_rest_while_a_member_lacks_a_confirmed_entry(
    cluster: FakeCluster, client: LedgerClient
) -> None:
    writer, seen = await begun(client, (3, 3, 2))
    slow = cluster.members(writer)[2]
    slow.hold = True
    writer.append(payloads(0, 0))
    await seen.until(0)
    writer.rest()
    assert not rests(writer)
    slow.hold = False
    slow.release()
    await idle(writer)
    writer.rest()
    assert rests(writer)


@pytest.mark.bookies(1)
async def test_a_resting_writer_that_was_fenced_fails_at_its_next_append(
    cluster: FakeCluster, client: LedgerClient
) -> None:
    writer, seen = await begun(client, entries=3)
    await idle(writer)
    writer.rest()
    assert rests(writer)
    cluster.bookie.refuse = lambda request: Rc.FENCED
    writer.append(payloads(3, 3))
    assert isinstance(await seen.until_failed(), LedgerFencedError)


@pytest.mark.bookies(1)
async def test_a_waiting_caller_is_woken_by_an_entry_written_after_a_rest(
    cluster: FakeCluster, client: LedgerClient
) -> None:
    writer, _ = await begun(client, entries=1)
    await idle(writer)
    writer.rest()
    assert rests(writer)
    assert await writer.write(payloads(1, 1)[0]) == 1
    assert writer.last_confirmed == 1
    await idle(writer)
    writer.rest()  # not while a caller may listen
    assert not rests(writer)


@pytest.mark.bookies(1)
async def test_a_closed_writer_takes_nothing_though_it_rested(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, _ = await begun(client, entries=2)
    await idle(writer)
    writer.rest()
    await writer.close()
    with pytest.raises(LedgerClosedError):
        writer.append(payloads(2, 2))
    writer.rest()  # changes nothing


@pytest.mark.bookies(1)
async def test_a_resting_writer_gives_its_memory_back(client: LedgerClient) -> None:
    tracemalloc.start()
    try:
        writers = [(await begun(client, entries=1))[0] for _ in range(WRITERS)]
        for writer in writers:
            await idle(writer)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for writer in writers:
            writer.rest()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (before - after) / WRITERS > BYTES_MIN
