from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from broker.dispatch.publish_time import SEARCH_S, first_published_at, last_published_before
from managed_ledger.errors import ManagedLedgerUnavailableError
from quire.ledger.position import LATEST, Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import entry
from tests.unit.managed_ledger.cluster import NAME, Cluster, in_cluster, publish


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_cluster() as cluster:
        yield cluster


async def test_an_entry_is_found_by_time_with_few_reads_however_many_ledgers_there_are(cluster: Cluster) -> None:
    async with cluster.broker(entries_max=2) as factory:
        log = await factory.open(NAME)
        ids = await publish(log, *[entry(b"m", publish_time=1000 + 10 * number) for number in range(601)])
        assert len(log.ledgers) > 300
        for number in (0, 1, 2, 300, 301, 599, 600):
            for early_ms in (0, 9):
                before = log.ledger_reads[0]
                found = await first_published_at(log, 1000 + 10 * number - early_ms)
                assert found == Position(*ids[number])
                assert log.ledger_reads[0] - before <= 12
        assert await first_published_at(log, 0) == Position(*ids[0])
        assert await first_published_at(log, 1 << 62) == LATEST


async def test_a_time_is_found_though_entries_on_the_way_cannot_be_read(cluster: Cluster) -> None:
    """The unreadable entries may be the middle of a ledger, where the search begins, its end, or all of one
    ledger."""

    def without_time() -> bytes:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=1)
        encoded = metadata.SerializePartialToString()
        return len(encoded).to_bytes(4, "big") + encoded

    async with cluster.broker(entries_max=10) as factory:
        for number, broken in enumerate(
            (
                {5},
                {9, 19, 29},
                set(range(10, 20)),
                {0, 4, 14, 24, 29},
                set(range(5, 25)),
                {0, 1, 28, 29},
                {3, 4, 5, 6, 7, 8, 9},
            )
        ):
            log = await factory.open(f"{NAME}-{number}")
            entries = [
                (b"junk" if each % 2 else without_time())
                if each in broken
                else entry(b"m", publish_time=1000 + 10 * each)
                for each in range(30)
            ]
            ids = [Position(*each) for each in await publish(log, *entries)]
            for wanted in range(30):
                found = await first_published_at(log, 1000 + 10 * wanted)
                readable = [each for each in range(wanted, 30) if each not in broken]
                if not readable:
                    assert found == LATEST or all(each in broken for each in range(ids.index(found), 30))
                    continue
                assert ids[0] <= found <= ids[readable[0]]
                between = ids[ids.index(found) : readable[0]]
                assert all(ids.index(each) in broken for each in between), "nothing older is delivered again"


async def test_more_unreadable_entries_than_are_looked_around_deliver_too_much_rather_than_too_little(
    cluster: Cluster,
) -> None:
    async with cluster.broker(entries_max=1000) as factory:
        log = await factory.open(NAME)
        entries = [b"junk" if 100 <= each < 500 else entry(b"m", publish_time=1000 + each) for each in range(600)]
        ids = [Position(*each) for each in await publish(log, *entries)]
        reads = log.ledger_reads[0]
        for wanted in (0, 50, 99, 500, 550, 599):
            assert await first_published_at(log, 1000 + wanted) <= ids[wanted]
        assert await first_published_at(log, 1000 + 550) >= ids[0]
        assert log.ledger_reads[0] - reads <= 7 * 12 * 3


async def test_the_time_that_a_broker_has_added_goes_before_the_producers(cluster: Cluster) -> None:
    def added(broker_ms: int, producer_ms: int) -> bytes:
        front = pb.BrokerEntryMetadata(broker_timestamp=broker_ms, index=1).SerializeToString()
        return b"\x0e\x02" + len(front).to_bytes(4, "big") + front + entry(b"m", publish_time=producer_ms)

    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        ids = await publish(log, *[added(1000 + number, 9000 - number) for number in range(10)])
        for number in range(10):
            assert await first_published_at(log, 1000 + number) == Position(*ids[number])


async def test_the_search_for_expired_entries_mostly_reads_the_oldest_alone(cluster: Cluster) -> None:
    async with cluster.broker(entries_max=10) as factory:
        log = await factory.open(NAME)
        ids = [Position(*each) for each in await publish(log, *[entry(b"m", publish_time=each) for each in range(200)])]
        before = log.ledger_reads[0]
        assert await last_published_before(log, 50, ids[60]) is None
        assert log.ledger_reads[0] - before <= 1
        assert await last_published_before(log, 50, ids[20]) == ids[49]
        assert await last_published_before(log, 999, ids[20]) == ids[199]
        assert await last_published_before(log, 999, Position(ids[199].ledger_id, 999)) is None


async def test_a_search_that_bookies_do_not_answer_is_given_up(cluster: Cluster) -> None:
    async with cluster.broker(entries_max=10) as factory:
        log = await factory.open(NAME)
        await publish(log, *[entry(b"m", publish_time=each) for each in range(20)])
        cluster.ledgers.delay_s = 10 * SEARCH_S
        began = trio.current_time()
        with pytest.raises(ManagedLedgerUnavailableError):
            await first_published_at(log, 5)
        assert trio.current_time() - began == pytest.approx(SEARCH_S)
