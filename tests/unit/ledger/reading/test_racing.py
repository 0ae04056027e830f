"""Speculative reads, on fake bookies under virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError
from quire.ledger.read_config import ReadConfig
from quire.ledger.reading.reader import LedgerReader
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from tests.support.effort import effort
from tests.unit.ledger.fake_bookie import FakeBookie, FakeCluster, payloads
from tests.unit.ledger.reads import read_all, written

FIXED = ReadConfig(speculative_learned=False)


def asked_of(bookie: FakeBookie) -> int:
    return len([each for each in bookie.requests if isinstance(each, v2.ReadRequest | v2.BatchReadRequest)])


def in_order(cluster: FakeCluster, reader: LedgerReader, entry_id: int = 0) -> list[FakeBookie]:
    """Return the bookies of the ensemble in the order in which the entry is requested from them."""
    bookies = reader.metadata.fragments[0].bookies
    return cluster.of([bookies[index] for index in reader._reads.order.of_entry(bookies, entry_id)])


async def timed(reader: LedgerReader, first: int = 0, last: int = 0) -> float:
    began = trio.current_time()
    await reader.read(first, last, size_max=1 << 20)
    return trio.current_time() - began


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize("batch_reads", [True, False])
async def test_a_read_that_takes_too_long_is_sent_to_the_next_bookie_too(quorum, batch_reads):
    cluster = FakeCluster(3)
    async with cluster.client(reads=FIXED) as client:
        reader = await written(client, quorum, 20)
        cluster.every(batch_reads=batch_reads)
        await read_all(reader)
        slow, next_one, *_ = in_order(cluster, reader)
        slow.hung = True
        assert await timed(reader) == 2.0
        assert client._context.health.failed_at(slow.bookie_id) is not None, "it was overtaken"
        before = asked_of(slow)
        assert await timed(reader) == 0, "others are asked first now"
        assert asked_of(slow) == before
        next_one.stop()
        if quorum[1] == 2:
            with trio.move_on_after(10):
                await reader.read(3, 3, size_max=100)
            assert asked_of(slow) > before, "slow is better than gone"
        else:
            assert await timed(reader) == 0


async def test_waits_for_further_bookies_grow_up_to_the_maximum() -> None:
    cluster = FakeCluster(4)
    reads = ReadConfig(
        speculative_learned=False, speculative_first_s=0.5, speculative_max_s=1.5, speculative_factor=2.0
    )
    async with cluster.client(reads=reads, read_timeout_s=60) as client:
        reader = await written(client, (4, 4, 2), 3)
        for bookie in in_order(cluster, reader)[:3]:
            bookie.hung = True
        assert await timed(reader) == 0.5 + 1.0 + 1.5


@pytest.mark.bookies(reads=ReadConfig(speculative_first_s=0), read_timeout_s=8)
async def test_without_speculation_a_hung_bookie_costs_its_timeout(cluster: FakeCluster, client: LedgerClient) -> None:
    reader = await written(client, (3, 3, 2), 3)
    in_order(cluster, reader)[0].hung = True
    assert 8 <= await timed(reader) < 10


@pytest.mark.bookies(reads=FIXED)
async def test_a_late_first_answer_wins_too_and_nothing_is_read_twice_afterwards(cluster, client):
    reader = await written(client, (3, 3, 2), 3)
    first, second, third = in_order(cluster, reader)
    first.delay_s = lambda: 2.5
    second.hung = True
    assert await timed(reader) == 2.5
    assert (asked_of(first), asked_of(second), asked_of(third)) == (1, 1, 0)
    assert client._context.health.failed_at(first.bookie_id) is None, "nobody overtook it"
    assert client._context.health.pending(second.bookie_id) == 1


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2)])
@pytest.mark.bookies(reads=FIXED)
async def test_an_answer_that_comes_in_the_moment_of_impatience_is_not_late(quorum, cluster, client):
    reader = await written(client, quorum, 20)
    for entry_id in range(20):
        first, second, *_ = in_order(cluster, reader, entry_id)
        before = asked_of(second)
        first.delay_s = lambda: 2.0
        assert await timed(reader, entry_id, entry_id) == 2.0
        assert asked_of(second) == before
        first.delay_s = None


async def test_when_the_early_second_reads_are_used_up_the_original_wait_is_kept() -> None:
    for quorum in ((3, 3, 2), (3, 2, 2)):
        cluster = FakeCluster(3)
        async with cluster.client() as client:
            reader = await written(client, quorum, 9)
            first = in_order(cluster, reader)[0]
            first.hung = True
            assert await timed(reader) < 0.02
            while reader._reads.doubled.spend(1):
                pass
            first.hung = False
            in_order(cluster, reader, 3)[0].hung = True
            assert await timed(reader, 3, 3) == 2.0


@pytest.mark.bookies(reads=FIXED)
async def test_a_failure_is_followed_at_once_by_the_next_bookie(cluster: FakeCluster, client: LedgerClient) -> None:
    reader = await written(client, (3, 3, 2), 3)
    first, second, third = in_order(cluster, reader)
    first.refuse = lambda request: Rc.IO
    second.delay_s = lambda: 3.0
    assert await timed(reader) == 2.0, "the second is late, so the third is asked"
    assert asked_of(third) == 1


@pytest.mark.bookies(reads=FIXED, read_timeout_s=30)
async def test_requests_under_way_are_counted_until_they_are_answered_whoever_gave_up(cluster, client):
    reader = await written(client, (3, 3, 2), 9)
    health = client._context.health
    first, second, _ = in_order(cluster, reader)
    first.delay_s = lambda: 6.0
    with trio.move_on_after(1):
        await reader.read(0, 8, size_max=1 << 20)
    await reader.read(0, 8, size_max=1 << 20)
    assert health.pending(first.bookie_id) >= 1
    await trio.sleep(10)
    assert [health.pending(each) for each in cluster.bookies] == [0, 0, 0]
    assert health.expected_s(first.bookie_id) >= 6.0, "the late answer is remembered"
    assert health.expected_s(second.bookie_id) < 0.1
    cluster.every(batch_reads=False, hung=True)
    with trio.move_on_after(5):
        await reader.read(0, 8, size_max=1 << 20)
    assert sum(health.pending(each) for each in cluster.bookies) > 0
    for bookie in cluster.bookies.values():
        bookie.lose_links()
    assert [health.pending(each) for each in cluster.bookies] == [0, 0, 0]


@settings(max_examples=effort(quick=20, full=60), deadline=None)
@given(
    st.sampled_from([(3, 3, 2), (3, 2, 2), (5, 3, 2), (2, 1, 1), (1, 1, 1)]),
    st.lists(
        st.sampled_from(["damaged", "empty", "hung", "refusing", "slow", "stopped", "well"]), min_size=5, max_size=5
    ),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1 << 16),
)
async def test_whatever_the_faults_entries_come_in_order_and_a_readable_one_is_read(
    quorum: tuple[int, int, int], faults: list[str], batch_reads: bool, learned: bool, seed: int
) -> None:
    """Check NoOutOfOrderEntries, and that an entry is refused only if none of its bookies can return it."""
    cluster = FakeCluster(5, seed=seed)
    async with cluster.client(reads=ReadConfig(speculative_learned=learned), read_timeout_s=5) as client:
        reader = await written(client, quorum, 25)
        ensemble = cluster.members(reader)
        can_give: list[bool] = []
        for bookie, fault in zip(ensemble, faults, strict=False):
            bookie.fail(fault, reader.ledger_id)
            bookie.batch_reads = batch_reads
            can_give.append(fault in ("well", "slow"))
        write_set = [[(entry_id + i) % quorum[0] for i in range(quorum[1])] for entry_id in range(25)]
        entry_id = 0
        while entry_id < 25:
            readable = any(can_give[index] for index in write_set[entry_id])
            try:
                found = [bytes(each) for each in await reader.read(entry_id, 24, size_max=200)]
            except LedgerError:
                assert not readable
                entry_id += 1
                continue
            assert readable
            assert found == payloads(entry_id, entry_id + len(found) - 1)
            entry_id += len(found)


# --- the high percentiles


def latencies(rng: random.Random, mean_s: float) -> Callable[[], float]:
    """Return a function that draws durations between half and three times the mean, most of them near it."""
    return lambda: mean_s * min(3.0, max(0.5, rng.lognormvariate(0, 0.35)))


async def percentiles(
    client: LedgerClient, reader: LedgerReader, count: int, rng: random.Random
) -> tuple[float, float]:
    """Return the median and the 99th percentile of random reads, in seconds."""
    times = []
    for _ in range(count):
        first = rng.randrange(0, 200)
        times.append(await timed(reader, first, first + rng.choice((0, 0, 5))))
    times.sort()
    return times[count // 2], times[count * 99 // 100]


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_bookie_a_hundred_times_slower_does_not_show_in_the_99th_percentile_of_reads(quorum, place):
    async def measure(factor: float, **config: Any) -> tuple[float, float]:
        rng = random.Random(place)
        cluster = FakeCluster(3)
        async with cluster.client(**config) as client:
            reader = await written(client, quorum, 210)
            for index, bookie in enumerate(cluster.members(reader)):
                bookie.delay_s = latencies(rng, 0.001 * (factor if index == place else 1))
            return await percentiles(client, reader, effort(quick=600, full=1000), rng)

    median, high = await measure(1)
    slow_median, slow_high = await measure(100)
    assert slow_high <= 2 * high, (high, slow_high)
    assert slow_median <= 1.5 * median


async def test_a_cluster_in_which_all_are_slow_is_not_asked_twice_for_everything() -> None:
    rng = random.Random(1)
    cluster = FakeCluster(3)
    async with cluster.client() as client:
        reader = await written(client, (3, 3, 2), 210)
        for bookie in cluster.bookies.values():
            bookie.delay_s = latencies(rng, 0.3)
        before = sum(map(asked_of, cluster.bookies.values()))
        await percentiles(client, reader, 500, rng)
        asked = sum(map(asked_of, cluster.bookies.values())) - before
        assert asked < 1.1 * 500


@pytest.mark.bookies(5)
async def test_one_slow_answer_among_many_single_reads_holds_only_itself_up(cluster: FakeCluster, client: LedgerClient):
    reader = await written(client, (5, 3, 2), 100)
    cluster.every(delay_s=lambda: 0.001)
    await read_all(reader)
    slow = cluster.members(reader)[2]
    slow.delay_s = lambda: 1.0
    began = trio.current_time()
    assert await read_all(reader) == payloads(0, 99)
    assert trio.current_time() - began < 0.1
