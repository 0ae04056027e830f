"""Faults of bookies and their disks under a ledger, with real processes on a real ZooKeeper. docs/faults.md has the
list, testdata/bookie_faults.txt most of the stories.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.ledger import LedgerClient, LedgerWriter, open_client
from quire.ledger.errors import LedgerFencedError
from quire.metadata.ledger_metadata import LedgerState
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster, cluster, sees
from tests.support.recoverer import Recoverer
from tests.support.stories.payloads import check, has, payload
from tests.support.stories.recovery_verbs import play
from tests.support.stories.text import Story, stories_of
from tests.support.zookeeper import until

pytestmark = pytest.mark.cluster
TAIL = 1500
"""Entries of a ledger whose recovery takes long enough to be killed in its middle."""
KILLS = 6


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("bookies"), 4) as made:
        yield made


@pytest.fixture
def bookies(shared: BookieCluster) -> Iterator[BookieCluster]:
    """Return four bookies, for tests that kill and pause but damage nothing; afterwards all of them run again."""
    yield shared
    for bookie in shared.bookies:
        if bookie.process is not None:
            bookie.resume()
        else:
            bookie.start()


@pytest.mark.real_clock
@stories_of(Path(__file__).parent / "testdata" / "bookie_faults.txt")
async def test_story(story: Story, bookies: BookieCluster, tmp_path: Path) -> None:
    await play(story, bookies, tmp_path)


@asynccontextmanager
async def with_client(bookies: BookieCluster) -> AsyncIterator[LedgerClient]:
    async with open_client(real_world(), bookies.uri) as client:
        await until(partial(sees, client, len([each for each in bookies.bookies if each.process])), "all are seen")
        yield client


async def begun(bookies: BookieCluster, client: LedgerClient) -> tuple[LedgerWriter, list[BookieProcess]]:
    """Return the writer of a ledger with 20 confirmed entries, and its bookies."""
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.append([payload(each) for each in range(20)])
    await writer.wait_confirmed(19)
    metadata = await client.read_metadata(writer.ledger_id)
    return writer, [bookies.by_id(name) for name in metadata.fragments[-1].bookies]


@pytest.mark.real_clock
async def test_k12_recoveries_in_parallel_with_a_living_writer_agree(bookies: BookieCluster) -> None:
    async with with_client(bookies) as client:
        writer, _ = await begun(bookies, client)
        ends: list[int] = []

        async def recover() -> None:
            async with open_client(real_world(), bookies.uri) as other:
                ends.append(await check(other, writer.ledger_id, 20, more=1 << 20))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(recover)
            number = 20
            while writer.error is None:
                writer.append([payload(number)])
                number += 1
                await trio.sleep(0.001)
            assert isinstance(writer.error, LedgerFencedError)
        assert len(set(ends)) == 1
        assert writer.last_add_confirmed < ends[0] <= number
        await check(client, writer.ledger_id, ends[0])


@pytest.mark.real_clock
async def test_k13_recovery_given_up_half_way_fifty_times_closes_with_the_same_entries(bookies: BookieCluster) -> None:
    async with with_client(bookies) as client:
        writer, members = await begun(bookies, client)
        # A tail that only one bookie may have, sent and not confirmed: recovery decides about it, once.
        for each in members[1:]:
            each.pause()
        writer.append([payload(each) for each in range(20, 60)])
        await until(partial(has, members[0], writer.ledger_id, 59), "the tail is on one bookie")
        for each in members[1:]:
            each.resume()
        given_up = 0
        for attempt in range(50):
            async with open_client(real_world(), bookies.uri) as other:
                with trio.move_on_after(0.0015 * attempt) as scope:
                    await other.open(writer.ledger_id, recover=True)
                given_up += scope.cancelled_caught
        assert given_up > 5
        first = await check(client, writer.ledger_id, 20, more=40)
        assert await check(client, writer.ledger_id, first) == first


@pytest.mark.full
@pytest.mark.real_clock
async def test_k13_a_process_killed_in_the_middle_of_recovery_again_and_again_leaves_it_to_the_next(
    bookies: BookieCluster,
) -> None:
    async with with_client(bookies) as client:
        writer, members = await begun(bookies, client)
        for each in members[1:]:
            each.pause()
        writer.append([payload(each) for each in range(20, TAIL)])  # all of them carry the LAC 19
        await until(partial(has, members[0], writer.ledger_id, TAIL - 1), "the tail is on one bookie")
        processes = [Recoverer(bookies.uri, writer.ledger_id) for _ in range(KILLS + 1)]
        # The first two find one bookie of three: they fence it, and can go no further.
        for process in processes[:2]:
            await trio.to_thread.run_sync(process.begin, abandon_on_cancel=True)
            await until(partial(_in_recovery, client, writer.ledger_id), "it has begun")
            await trio.to_thread.run_sync(process.kill)
        for each in members[1:]:
            each.resume()
        killed = 2
        for number, process in enumerate(processes[2:-1]):
            await trio.to_thread.run_sync(process.begin, abandon_on_cancel=True)
            await trio.sleep(0.01 * (number + 1))
            await trio.to_thread.run_sync(process.kill)
            killed += await _in_recovery(client, writer.ledger_id)
        assert killed >= 4
        await trio.to_thread.run_sync(processes[-1].begin, abandon_on_cancel=True)
        last = await trio.to_thread.run_sync(processes[-1].last_entry, abandon_on_cancel=True)
        assert last >= writer.last_add_confirmed
        assert await check(client, writer.ledger_id, 20, recover=False, more=TAIL - 20) == last + 1
        assert (await client.read_metadata(writer.ledger_id)).state is LedgerState.CLOSED


async def _in_recovery(client: LedgerClient, ledger_id: int) -> bool:
    return (await client.read_metadata(ledger_id)).state is LedgerState.IN_RECOVERY
