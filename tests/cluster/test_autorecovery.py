"""`quire autorecovery` as processes, on a real ZooKeeper with real bookies: what is lost for good, or damaged, is
copied from the others, and every copy is read afterwards. docs/faults.md has the list.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from autorecovery.auditing.election import election_folder, read_auditor
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH
from quire.ledger import LedgerClient, open_client
from quire.metadata import paths
from quire.metadata.ledgers import LedgerState
from quire.metadata.store import MetadataStore
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.world.real import real_world
from tests.support.autorecovery_process import SESSION_MS, AutoRecoveryProcess, auto_recovery
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster, cluster, sees
from tests.support.zookeeper import until

pytestmark = pytest.mark.cluster

PATIENCE_S = 60.0
STORY_S = 180.0
"""At most; on a busy machine."""
ZK_EXPIRED = 3
LOADED = 20
"""Ledgers that are written at once when a bookie is killed."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("bookies"), 3, conf={"zkTimeout": SESSION_MS}) as made:
        yield made


@asynccontextmanager
async def with_client(bookies: BookieCluster) -> AsyncIterator[tuple[LedgerClient, MetadataStore]]:
    world = real_world()
    store = await open_store(world, ZooKeeperConfig(servers=(("127.0.0.1", bookies.zookeeper.port),)))
    try:
        async with open_client(world, bookies.uri) as client:
            await until(partial(sees, client, len([each for each in bookies.bookies if each.process])), "all are seen")
            yield client, store
    finally:
        await store.aclose()


def payload(number: int) -> bytes:
    return b"%d " % number + bytes([number % 256]) * (number * 37 % 400)


async def write(
    client: LedgerClient, count: int, *, close: bool = True, quorums: tuple[int, int, int] = (3, 3, 2)
) -> int:
    writer = await client.create(ensemble_size=quorums[0], write_quorum=quorums[1], ack_quorum=quorums[2])
    writer.append([payload(each) for each in range(count)])
    await writer.wait_confirmed(count - 1)
    if close:
        await writer.close()
    return writer.ledger_id


def marks_of(bookies: BookieCluster, store: MetadataStore) -> UnderreplicatedLedgers:
    world = real_world()
    return UnderreplicatedLedgers(store, root=bookies.root, rng=world.rng, wall_ms=world.clock.wall_ms, owner="test")


async def nothing_is_marked(bookies: BookieCluster, store: MetadataStore) -> bool:
    return not [each async for each in marks_of(bookies, store).list()]


async def nobody_names(client: LedgerClient, ledger_ids: Sequence[int], bookie_id: str) -> bool:
    for ledger_id in ledger_ids:
        metadata = await client.read_metadata(ledger_id)
        if any(bookie_id in each.bookies for each in metadata.fragments):
            return False
    return True


async def check_every_copy(client: LedgerClient, ledger_id: int, count: int) -> None:
    metadata = await client.read_metadata(ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, count - 1)
    assert await LedgerChecker(client, rng=real_world().rng).check(ledger_id, metadata, percentage=100) == []
    reader = await client.open(ledger_id, recover=False)
    assert [bytes(each) for each in await reader.read(0, count - 1)] == [payload(each) for each in range(count)]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


async def in_thread(job: Callable[[], object]) -> None:
    await trio.to_thread.run_sync(job)


def test_k15_o1_a_bookie_lost_for_good_is_made_up_for_though_the_auditor_dies_too(tmp_path: Path) -> None:
    with (
        cluster(tmp_path, 4, conf={"zkTimeout": SESSION_MS}) as bookies,
        auto_recovery(bookies.folder, bookies.uri, "ar1", "ar2") as workers,
    ):

        async def story(client: LedgerClient, store: MetadataStore) -> None:
            shapes = [(3, 3, 2), (3, 2, 2), (2, 2, 1)]
            ledger_ids = [await write(client, 40, quorums=shapes[each % 3]) for each in range(45)]
            # All its copies are there: with one on its way the writer would replace the lost bookie itself, and leave
            # it open.
            open_one = await write(client, 25, close=False, quorums=(3, 3, 3))
            lost = (await client.read_metadata(open_one)).fragments[0].bookies[0]
            await in_thread(bookies.by_id(lost).lose_for_good)
            auditor = await read_auditor(store, bookies.root)
            await in_thread(next(each for each in workers if each.name == auditor).kill)
            writing = True

            async def keep_writing() -> None:
                while writing:
                    ledger_ids.append(await write(client, 40))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_writing)
                await until(
                    partial(nobody_names, client, [*ledger_ids[:45], open_one], lost), "all is copied", PATIENCE_S
                )
                writing = False
            await until(partial(nothing_is_marked, bookies, store), "nothing is marked any more", PATIENCE_S)
            await until(partial(nobody_names, client, ledger_ids, lost), "what was written since is copied", PATIENCE_S)
            for ledger_id in ledger_ids:
                await check_every_copy(client, ledger_id, 40)
            await check_every_copy(client, open_one, 25)

        with_client(bookies, story)


def test_k17_a_bookie_killed_under_load_and_back_within_the_delay_gets_the_copies_that_it_missed(
    tmp_path: Path,
) -> None:
    with (
        cluster(tmp_path, 4, conf={"zkTimeout": SESSION_MS}) as bookies,
        auto_recovery(bookies.folder, bookies.uri, "ar1", lostBookieRecoveryDelay=30),
    ):

        async def story(client: LedgerClient, store: MetadataStore) -> None:
            writers = [await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2) for _ in range(LOADED)]
            written = [0] * LOADED
            writing = True

            async def load(index: int) -> None:
                while writing:
                    run = [payload(each) for each in range(written[index], written[index] + 5)]
                    writers[index].append(run)
                    written[index] += len(run)
                    await writers[index].wait_confirmed(written[index] - 1)
                await writers[index].close()

            killed = bookies.by_id(writers[0].metadata.fragments[0].bookies[0])
            async with trio.open_nursery() as nursery:
                for index in range(LOADED):
                    nursery.start_soon(load, index)
                await trio.sleep(0.5)
                await in_thread(killed.kill)
                await trio.sleep(0.5)
                writing = False
            await in_thread(partial(bookies.start, killed))
            checker = LedgerChecker(client, rng=real_world().rng)

            async def is_whole() -> bool:
                for writer in writers:
                    metadata = await client.read_metadata(writer.ledger_id)
                    if await checker.check(writer.ledger_id, metadata, percentage=100):
                        return False
                return await nothing_is_marked(bookies, store)

            await until(is_whole, "the bookie has what it missed", PATIENCE_S)
            fragments = [fragment for writer in writers for fragment in writer.metadata.fragments]
            assert any([killed.id in each.bookies for each in fragments]), "it is still a member, and was not replaced"
            for writer, count in zip(writers, written, strict=True):
                await check_every_copy(client, writer.ledger_id, count)

        with_client(bookies, story)


@pytest.mark.real_clock
async def test_k6_d5_d6_copies_damaged_on_a_living_bookie_are_found_and_made_good(shared: BookieCluster) -> None:
    async with with_client(shared) as (client, store):
        checker = LedgerChecker(client, rng=real_world().rng)
        ledger_id = await write(client, 200)
        settings = {"auditorPeriodicCheckInterval": 1, "auditorLedgerVerificationPercentage": 100}

        async def is_bad() -> bool:
            metadata = await client.read_metadata(ledger_id)
            return bool(await checker.check(ledger_id, metadata, percentage=100))

        async def is_good() -> bool:
            return not await is_bad() and await nothing_is_marked(shared, store)

        damaged = shared.by_id((await client.read_metadata(ledger_id)).fragments[0].bookies[0])
        damaged.announced.append("read failed")
        await in_thread(damaged.stop)
        await in_thread(partial(damage_entry_logs, damaged))
        await in_thread(partial(shared.start, damaged))
        await until(is_bad, "the damage is seen")
        with auto_recovery(shared.folder, shared.uri, "worker", **settings):
            await until(is_good, "all is made good", PATIENCE_S)
        await check_every_copy(client, ledger_id, 200)
        # There is no other bookie: its copies were written again where they were.
        assert damaged.id in (await client.read_metadata(ledger_id)).fragments[0].bookies


def damage_entry_logs(bookie: BookieProcess) -> None:
    """A byte in every kilobyte of what the bookie keeps."""
    for path in (bookie.folder / "ledgers" / "current").glob("*.log"):
        data = bytearray(path.read_bytes())
        for offset in range(HEADER_LENGTH + 2000, len(data) - 2000, 1024):
            data[offset] ^= 1
        path.write_bytes(data)


def test_a_process_that_slept_through_its_session_ends_with_the_originals_exit_code(shared: BookieCluster) -> None:
    settings = {"zookeeperSessionExpiredPolicy": "shutdown"}
    with auto_recovery(shared.folder, shared.uri, "sleeper", **settings) as [worker]:

        async def story(_: LedgerClient, store: MetadataStore) -> None:
            async def stands() -> bool:
                folder = election_folder(shared.root)
                votes = [await store.get(paths.join(folder, name)) for name in await store.children(folder)]
                return any(b"sleeper" in vote.value for vote in votes if vote is not None)

            async def is_forgotten() -> bool:
                return not await stands()

            await until(stands, "it is a candidate")
            await in_thread(worker.pause)
            await until(is_forgotten, "its session is over")
            worker.resume()

        with_client(shared, story)
        assert worker.wait_ended() == ZK_EXPIRED, worker.log()


@pytest.mark.real_clock
async def test_a_bookie_can_run_it_beside_itself(shared: BookieCluster) -> None:
    [bookie] = shared.add(1, {"zkTimeout": SESSION_MS, "autoRecoveryDaemonEnabled": "true"})

    async def story(client: LedgerClient, store: MetadataStore) -> None:
        async def is_auditor() -> bool:
            return await read_auditor(store, shared.root) == bookie.id

        await until(is_auditor, "it is the auditor", PATIENCE_S)
        ledger_id = await write(client, 10)
        member = (await client.read_metadata(ledger_id)).fragments[0].bookies[0]
        await marks_of(shared, store).mark(ledger_id, [member])
        await until(partial(nothing_is_marked, shared, store), "nothing is marked any more", PATIENCE_S)
        await check_every_copy(client, ledger_id, 10)

    async with with_client(shared) as (client, store):
        await story(client, store)
    assert bookie.stop() == 0


def test_it_stops_when_asked_and_refuses_a_wrong_configuration(shared: BookieCluster) -> None:
    web = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": 0}
    with auto_recovery(shared.folder, shared.uri, "stopped", **web) as [worker]:
        found = re.search(r"http=(\S+) ", worker.log())
        assert found is not None
        assert get(f"{found[1]}/heartbeat") == "OK\n"
        metrics = get(f"{found[1]}/metrics")
        assert "replication_worker_NUM_ENTRIES_WRITTEN" in metrics
        assert "auditor_IS_AUDITOR" in metrics
        assert worker.stop() == 0, worker.log()
    wrong = AutoRecoveryProcess(shared.folder, shared.uri, "wrong", rwRereplicateBackoffMs="soon")
    code, said = wrong.refused()
    assert code == 1
    assert "rwRereplicateBackoffMs" in said
