"""Following a ledger that is being written: long polls, the watch of the metadata, and the iterator over both."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from quire.ledger import LedgerConfig, open_client_on
from quire.ledger.bookies.pool import WireProtocol
from quire.ledger.client import LedgerClient
from quire.ledger.errors import ClientClosedError, LedgerClosedError, LedgerFencedError, NoSuchLedgerError
from quire.ledger.read_config import ReadConfig
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.errors import SessionExpiredError
from quire.metadata.local.memory import MemoryTree
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from tests.unit.ledger import fake_v3
from tests.unit.ledger.fake_bookie import FakeBookie, FakeCluster, payloads
from tests.unit.ledger.served_bookie import a_bookie

QUORUMS = [(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2)]
DIGEST = Digest(DigestType.CRC32C)


async def collect(reader: LedgerReader, into: list[bytes]) -> None:
    """Append all entries to `into`, and check their order."""
    async for entry_id, payload in reader.tail(0):
        assert entry_id == len(into), "NoOutOfOrderEntries"
        into.append(bytes(payload))


@asynccontextmanager
async def following(reader: LedgerReader, *, to_its_end: bool = True) -> AsyncIterator[list[bytes]]:
    """Follow a ledger, and yield the list to which its entries are appended; at the end wait for its end, or stop."""
    found: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, reader, found)
        yield found
        if not to_its_end:
            nursery.cancel_scope.cancel()


async def opened(
    client: LedgerClient, quorum: tuple[int, int, int] = (3, 3, 2), entries: int = 0
) -> tuple[LedgerWriter, LedgerReader]:
    """Begin a ledger with so many confirmed entries; return its writer, and a reader that was opened behind them."""
    size, write_quorum, ack_quorum = quorum
    writer = await client.create(ensemble_size=size, write_quorum=write_quorum, ack_quorum=ack_quorum)
    if entries:
        await write(writer, 0, entries - 1)
    return writer, await client.open_no_recovery(writer.ledger_id)


async def write(writer: LedgerWriter, first: int, last: int) -> None:
    writer.append(payloads(first, last))
    await writer.wait_confirmed(last)


def polls_of(bookie: FakeBookie) -> int:
    return sum(isinstance(each, v3.ReadRequest) and each.previous_lac is not None for each in bookie.requests)


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_a_ledger_is_followed_from_its_first_entry_to_its_close(quorum: tuple[int, int, int], protocol: str):
    cluster = FakeCluster(5)
    rng = random.Random(1)
    async with cluster.client() as writing, cluster.client(protocol=protocol) as reading:
        size, write_quorum, ack_quorum = quorum
        writer = await writing.create(ensemble_size=size, write_quorum=write_quorum, ack_quorum=ack_quorum)
        reader = await reading.open_no_recovery(writer.ledger_id)
        async with following(reader) as found:
            written = 0
            while written < 300:
                count = rng.choice((1, 1, 2, 50))
                await write(writer, written, written + count - 1)
                written += count
                await trio.sleep(rng.choice((0.01, 3.0, 30.0)))
                assert len(found) <= writer.last_confirmed + 1
                assert len(found) >= writer.last_confirmed + 1 - count, "behind by what nothing has followed yet"
            await writer.close()
        assert found == payloads(0, written - 1)
        assert reader.closed
        assert (reader.last_entry_id, reader.length) == (written - 1, sum(map(len, found)))


async def test_the_next_entry_comes_along_with_the_answer_to_a_long_poll(cluster: FakeCluster, client: LedgerClient):
    writer, reader = await opened(client, entries=1)
    assert (await reader.wait_for_next(timeout_s=1)).last_entry_id == -1
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(await reader.wait_for_next())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await write(writer, 1, 1)
    [(last, entry)] = answers
    assert (last, bytes(entry)) == (0, payloads(0, 0)[0])
    assert not cluster.asked(v2.BatchReadRequest, v2.ReadRequest)


async def test_an_explicit_lac_ends_the_wait_for_the_last_entry(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, reader = await opened(client, entries=5)
    async with following(reader, to_its_end=False) as found:
        await trio.sleep(60)
        assert found == []
        for bookie in cluster.bookies.values():
            fake_v3.explicit_lac(bookie, writer.ledger_id, 4, DIGEST)
        await trio.testing.wait_all_tasks_blocked()
        assert found == payloads(0, 4)


async def test_a_wait_ends_with_its_time_or_with_the_ledger(client: LedgerClient) -> None:
    writer, reader = await opened(client, entries=3)
    began = trio.current_time()
    assert await reader.wait_for_next(1, timeout_s=25) == (-1, None)
    assert trio.current_time() - began == 25
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.wait_for_next, 100)
        await trio.sleep(5)
        await writer.close()
    assert trio.current_time() - began == 30
    assert reader.closed
    assert await reader.wait_for_next(100) == (2, None)
    assert await reader.wait_for_next(1) == (2, None)


async def test_a_hung_bookie_does_not_hold_up_who_waits() -> None:
    for index in range(3):
        cluster = FakeCluster(3)
        async with cluster.client() as client:
            writer, reader = await opened(client, entries=1)
            await reader.wait_for_next(timeout_s=1)
            hung = cluster.members(writer)[index]
            hung.hung = True
            hung.polls.clear()
            async with following(reader, to_its_end=False) as found:
                await trio.sleep(10)
                await write(writer, 1, 1)
                await trio.sleep(1.6)
                assert found == payloads(0, 0), "the first speculative poll is out after 1.5 s"


@pytest.mark.parametrize("quorum", [(3, 2, 2), (5, 3, 2), (5, 2, 2), (4, 1, 1)])
@pytest.mark.bookies(5)
async def test_the_news_is_heard_at_once_whichever_bookie_has_it(client: LedgerClient, quorum: tuple[int, int, int]):
    writer, reader = await opened(client, quorum)
    await write(writer, 0, 4)
    async with following(reader, to_its_end=False) as found:
        await trio.sleep(1)
        for entry_id in range(5, 30):
            await write(writer, entry_id, entry_id)
            await trio.sleep(0.01)
            assert len(found) == entry_id


@pytest.mark.bookies(2)
async def test_a_new_fragment_tells_how_far_the_one_before_is_confirmed(cluster: FakeCluster, client: LedgerClient):
    writer, reader = await opened(client, (1, 1, 1), entries=5)
    assert reader.last_entry_id == -1
    cluster.members(writer)[0].stop()
    await write(writer, 5, 5)
    cluster.every(hung=True)
    assert (await reader.wait_for_next(5, timeout_s=1)).last_entry_id == 4


@pytest.mark.bookies(reads=ReadConfig(long_poll_s=10))
async def test_bookies_are_polled_no_more_often_than_their_patience_asks_for(cluster, client):
    _, reader = await opened(client, entries=1)
    await reader.wait_for_next(timeout_s=600)
    assert all(0 < polls_of(bookie) <= 70 for bookie in cluster.bookies.values())
    _, reader = await opened(client)
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    await reader.wait_for_next(timeout_s=600)
    assert all(0 < polls_of(bookie) <= 720 for bookie in cluster.bookies.values()), "nobody knows the ledger yet"


@pytest.mark.bookies(6)
async def test_a_change_of_the_ensemble_is_followed(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, reader = await opened(client, (3, 2, 2))
    async with following(reader) as found:
        written = 0
        for _ in range(3):
            await write(writer, written, written + 4)
            written += 5
            cluster.members(writer, -1)[0].stop()
            await write(writer, written, written)
            written += 1
            await trio.sleep(1)
        await writer.close()
    assert len(reader.metadata.fragments) == 4
    assert found == payloads(0, written - 1)


@pytest.mark.bookies(4)
async def test_entries_of_a_fragment_that_a_reader_has_not_heard_of_are_found(cluster, client):
    """The watch is late; the failing read reads the metadata itself."""
    writer, reader = await opened(client, (2, 2, 1), entries=5)
    for bookie in cluster.members(writer):
        bookie.refuse = lambda request: Rc.READ_ONLY if isinstance(request, Run) else None
    await write(writer, 5, 9)
    assert len(writer.metadata.fragments) >= 2
    assert not set(writer.metadata.fragments[-1].bookies) & set(reader.metadata.fragments[0].bookies)
    assert [bytes(each) for each in await reader.read_unconfirmed(5, 9)] == payloads(5, 9)
    assert reader.metadata == writer.metadata
    assert reader.last_entry_id >= 4, "a fragment begins after the last confirmed entry"


async def test_a_ledger_that_is_recovered_by_others_ends_where_they_closed_it() -> None:
    cluster = FakeCluster(3)
    async with cluster.client() as one, cluster.client() as other:
        writer, reader = await opened(one, entries=10)
        async with following(reader) as found:
            await trio.sleep(1)
            assert (await other.open(writer.ledger_id, recover=True)).last_entry_id == 9
        assert found == payloads(0, 9)
        writer.append([b"too late"])
        with pytest.raises(LedgerFencedError):
            await writer.wait_confirmed(10)


async def test_following_ends_with_an_error_when_the_ledger_is_deleted_the_reader_or_the_client_closed() -> None:
    cluster = FakeCluster(3)
    for kind in (NoSuchLedgerError, LedgerClosedError, ClientClosedError):
        async with cluster.client() as client:
            writer, reader = await opened(client, entries=1)
            raised: list[Exception] = []

            async def follow(reader: LedgerReader = reader, raised: list[Exception] = raised) -> None:
                try:
                    await collect(reader, [])
                except Exception as error:
                    raised.append(error)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await trio.sleep(1)
                if kind is NoSuchLedgerError:
                    await client.delete(writer.ledger_id)
                elif kind is LedgerClosedError:
                    reader.close()
                    reader.close()
                else:
                    client.close()
            assert [type(each) for each in raised] == [kind]


async def test_the_end_of_the_metadata_session_is_told_to_who_follows(cluster: FakeCluster, client: LedgerClient):
    _, reader = await opened(client, entries=1)
    with pytest.RaisesGroup(SessionExpiredError):
        async with following(reader):
            await trio.sleep(1)
            await cluster.store.aclose()


async def test_all_bookies_may_be_away_for_a_while(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, reader = await opened(client, entries=5)
    async with following(reader) as found:
        await trio.sleep(1)
        for bookie in cluster.bookies.values():
            bookie.stop()
            bookie.polls.clear()
        await trio.sleep(60)
        cluster.every(down=False)
        await write(writer, 5, 5)
        await writer.close()
    assert found == payloads(0, 5)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_a_ledger_of_a_real_bookie_is_followed(protocol: WireProtocol, world: World) -> None:
    async with a_bookie(world, MemoryTree()) as store:
        config = LedgerConfig(protocol=protocol, explicit_lac_interval_s=0.5)
        async with open_client_on(world, store, config) as client:
            writer, reader = await opened(client, (1, 1, 1))
            async with following(reader) as found:
                for first in range(0, 40, 4):
                    await write(writer, first, first + 3)
                    await trio.sleep(0.1)
                    assert len(found) >= first
                await trio.sleep(3)
                assert len(found) == 40, "the explicit LAC told of the last ones"
                assert await reader.read_last_confirmed() == 39
                await writer.close()
            assert found == payloads(0, 39)
