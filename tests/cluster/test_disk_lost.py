"""A bookie's disk is lost permanently while clients write: auto recovery makes every copy again, a new bookie gets its
share of new ledgers and nothing of old ones, and no bookie is released while copies are missing. docs/faults.md has the
list.

"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pulsar
import pytest
import trio

from quire.cli.operations.__main__ import main as run_operation
from quire.cli.shell.main import run_shell
from quire.ledger import LedgerClient, open_client
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata import bookies
from quire.metadata.ledgers import ledger_path
from quire.metadata.store import Node
from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.wire.bookkeeper.entry import DigestType
from quire.world.real import real_world
from tests.support.autorecovery_process import SESSION_MS, auto_recovery
from tests.support.bookie_process import BookieProcess
from tests.support.broker_process import BrokerCluster, client_of
from tests.support.zookeeper import opened, shared_server, until

pytestmark = pytest.mark.cluster

STORY_S = 180.0
"""Maximum duration of a story, in seconds, on a busy machine."""
GRACE_MS = 5000
"""Time for the broker to replace two lost members in its open ledgers, one partition after the other. A ledger that is
recovered before has one bookie left of three, which cannot close it. The original waits for 30 s."""
ENTRIES = 50
ENTRY = bytes(range(256)) * 4
LEDGERS_AT_ONCE = 16
PARTITIONS = 20
ROLL_ENTRIES = 10
"""Entries of a ledger of a partition."""
PAUSE_S = 0.01
"""Seconds between two messages."""
FAILED = 255


class Writing:
    """One producer in a thread, which continues through all faults.

    An error that the application would see fails the test.
    """

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.sent: list[bytes] = []
        """Messages with a receipt."""
        self.errors: list[BaseException] = []
        self.enough = threading.Event()
        self._producer = client.create_producer(
            topic,
            batching_enabled=False,
            send_timeout_millis=0,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        self.thread = threading.Thread(target=self._send, daemon=True)

    def _send(self) -> None:
        try:
            while not self.enough.wait(PAUSE_S):
                payload = b"%d" % len(self.sent)
                self._producer.send(payload)
                self.sent.append(payload)
        except BaseException as error:
            self.errors.append(error)


@contextmanager
def writing(client: pulsar.Client, topic: str) -> Iterator[Writing]:
    made = Writing(client, topic)
    made.thread.start()
    try:
        yield made
    finally:
        made.enough.set()
        made.thread.join(30)
    assert not made.errors, made.errors
    assert not made.thread.is_alive(), "the producer hangs"


class Room:
    """The cluster, with one ledger client and one metadata session of the test."""

    def __init__(self, cluster: BrokerCluster, client: LedgerClient, store: ZooKeeperStore) -> None:
        self.cluster = cluster
        self.client = client
        self.store = store

    async def shell(self, *words: str) -> tuple[int, str, str]:
        """Run a command of the shell; return its exit code, output and errors."""
        out, err = io.StringIO(), io.StringIO()
        given = ["-conf", str(self.cluster.bookies[-1].conf), "-json", *words]
        # (A command that waits for what never comes is left behind when the test gives up.)
        code = await trio.to_thread.run_sync(partial(run_shell, given, out=out, err=err), abandon_on_cancel=True)
        return code, out.getvalue(), err.getvalue()

    async def write_ledgers(self, count: int) -> list[int]:
        """Write and close ledgers, each with three copies of ENTRIES entries; return their ids."""
        made: list[int] = []
        rest = iter(range(count))

        async def work() -> None:
            for _ in rest:
                writer = await self.client.create(
                    ensemble_size=3, write_quorum=3, ack_quorum=2, digest_type=DigestType.CRC32C
                )
                writer.append([ENTRY] * ENTRIES)
                await writer.wait_confirmed(ENTRIES - 1)
                await writer.close()
                made.append(writer.ledger_id)

        async with trio.open_nursery() as nursery:
            for _ in range(LEDGERS_AT_ONCE):
                nursery.start_soon(work)
        return sorted(made)

    async def ledger_ids(self) -> list[int]:
        return [each async for each in self.client.list_ledgers()]

    async def stored(self, ledger_ids: Collection[int]) -> dict[int, Node | None]:
        """Return the metadata of the ledgers as stored in ZooKeeper, with versions."""
        return {each: await self.store.get(ledger_path("/ledgers", each)) for each in ledger_ids}

    async def members(self, ledger_ids: Collection[int]) -> set[str]:
        """Return the bookies that any of them names."""
        found: set[str] = set()
        for each in ledger_ids:
            with suppress(NoSuchLedgerError):
                metadata = await self.client.read_metadata(each)
                found.update(bookie_id for fragment in metadata.fragments for bookie_id in fragment.bookies)
        return found

    async def is_registered(self, bookie_id: str) -> bool:
        return bookie_id in await bookies.available(self.store)

    async def has_cookie(self, bookie_id: str) -> bool:
        return await bookies.read_cookie(self.store, bookie_id) is not None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    """Run three bookies and a broker that begins a new ledger after a few entries."""
    made = BrokerCluster(tmp_path, shared_server(), bookies=0)
    try:
        for _ in range(3):
            made.bookie(zkTimeout=SESSION_MS)
        made.start_bookies()
        keep = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
        roll = {"managedLedgerMaxEntriesPerLedger": ROLL_ENTRIES, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
        made.broker(**keep, **roll).start()
        yield made
    finally:
        made.end()
    for process in (*made.brokers, *made.bookies):
        process.check_log()


@asynccontextmanager
async def open_room(cluster: BrokerCluster) -> AsyncIterator[Room]:
    async with (
        open_client(real_world(), cluster.ledgers_uri) as client,
        opened(cluster.server.config(cluster.chroot)) as store,
    ):
        yield Room(cluster, client, store)


@pytest.mark.real_clock(seconds=STORY_S)
@pytest.mark.parametrize("count", [pytest.param(40), pytest.param(1000, marks=pytest.mark.full)])
async def test_k15_a_disk_that_is_lost_for_good_costs_no_copy_and_stops_no_client(
    cluster: BrokerCluster, count: int
) -> None:
    old, [broker] = list(cluster.bookies), cluster.brokers
    topic = "persistent://public/default/written"
    with (
        auto_recovery(
            cluster.folder, cluster.ledgers_uri, "ar1", "ar2", openLedgerRereplicationGracePeriod=GRACE_MS
        ) as workers,
        client_of(broker) as client,
    ):
        made = broker.ask("PUT", "/admin/v2/persistent/public/default/written/partitions", json=PARTITIONS)
        assert made.status_code == 204
        async with open_room(cluster) as room:
            ledger_ids = await room.write_ledgers(count)
            with writing(client, topic) as producer:
                new = await a_newcomer_takes_its_part_of_what_is_new(room, ledger_ids)
                await no_bookie_is_let_go_while_copies_are_missing(room, lost=old[0], leaving=new[1])
                await all_is_copied(room, ledger_ids, lost=old[0], leaving=new[1])
                assert await room.members(ledger_ids) == {old[1].id, old[2].id, new[0].id}
            await every_copy_is_good(room, count * ENTRIES * 3)
            await trio.to_thread.run_sync(everything_is_received, client, topic, producer.sent)
    shares = [each.log().count('event="ledger replicated"') for each in workers]
    print(f"ledgers of each worker: {shares}")
    assert min(shares) > 0


async def a_newcomer_takes_its_part_of_what_is_new(room: Room, ledger_ids: list[int]) -> list[BookieProcess]:
    """Add two bookies: each gets fragments once every partition has had one rollover, and old ledgers are unchanged."""
    before = await room.stored(ledger_ids)
    newcomers = [room.cluster.bookie(zkTimeout=SESSION_MS) for _ in range(2)]
    await trio.to_thread.run_sync(room.cluster.start_bookies, *newcomers)
    known = set(await room.ledger_ids())

    async def rolled() -> bool:
        return len(set(await room.ledger_ids()) - known) >= PARTITIONS

    await until(rolled, "as many ledgers are new as there are partitions")
    first = sorted(set(await room.ledger_ids()) - known)[:PARTITIONS]
    assert {each.id for each in newcomers} <= await room.members(first)
    assert await room.stored(ledger_ids) == before
    return newcomers


async def no_bookie_is_let_go_while_copies_are_missing(
    room: Room, *, lost: BookieProcess, leaving: BookieProcess
) -> None:
    """One bookie is stopped, to be taken out. Then another bookie's disk is lost, and no auditor has noticed it yet."""
    leaving_id, lost_id = leaving.id, lost.id
    assert await trio.to_thread.run_sync(leaving.stop) == 0
    workers = [room.cluster.folder / f"{name}.log" for name in ("ar1", "ar2")]

    async def is_audited() -> bool:
        return any(
            re.search(rf'event="bookie lost".*{re.escape(leaving_id)}', each.read_text()) is not None
            for each in workers
        )

    async def is_gone() -> bool:
        return not await room.is_registered(lost_id)

    await until(is_audited, "the auditor has seen the one that was stopped")
    assert (await room.shell("lostbookierecoverydelay", "-s", "3600"))[0] == 0
    await trio.to_thread.run_sync(lost.lose_for_good)
    await until(is_gone, "the lost bookie's session has ended")
    code, _, said = await room.shell("decommissionbookie", "-bookieid", leaving_id)
    assert code == FAILED
    assert "copies of other bookies are missing" in said
    assert lost_id in said
    assert await room.has_cookie(leaving_id)


async def all_is_copied(room: Room, ledger_ids: list[int], *, lost: BookieProcess, leaving: BookieProcess) -> None:
    """Check that all is copied; then both bookies may be taken out."""
    gone = {lost.id, leaving.id}
    assert lost.id in await room.members(ledger_ids)
    begun = trio.current_time()
    assert (await room.shell("lostbookierecoverydelay", "-s", "0"))[0] == 0

    async def is_copied() -> bool:
        return not gone & await room.members(ledger_ids)

    async def is_all_copied() -> bool:
        return not gone & await room.members(await room.ledger_ids())

    async def nothing_is_marked() -> bool:
        code, out, _ = await room.shell("listunderreplicated", "-c")
        return (code, json.loads(out)["count"]) == (0, 0)

    await until(is_copied, "no old ledger names a bookie that is gone", seconds=STORY_S)
    print(f"{len(ledger_ids)} ledgers copied in {trio.current_time() - begun:.1f} s")
    await until(is_all_copied, "nor does a ledger of the topic", seconds=STORY_S)
    for bookie in (leaving, lost):
        code, _, said = await room.shell("decommissionbookie", "-bookieid", bookie.id)
        assert code == 0, said
        assert not await room.has_cookie(bookie.id)
    await until(nothing_is_marked, "nothing is marked any more")


async def every_copy_is_good(room: Room, copies: int) -> None:
    """Check every copy of the ledgers, and of the topic's ledgers."""
    out, err = io.StringIO(), io.StringIO()
    words = ["verify-replicas", "--conf", str(room.cluster.bookies[-1].conf), "--json"]
    code = await trio.to_thread.run_sync(partial(run_operation, words, out=out, err=err))
    found = json.loads(out.getvalue().splitlines()[-1])
    assert (code, found["good"]) == (0, True), out.getvalue() + err.getvalue()
    assert found["copies"] > copies


def everything_is_received(client: pulsar.Client, topic: str, sent: list[bytes]) -> None:
    consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
    found = {consumer.receive(10_000).data() for _ in sent}
    assert found == set(sent)
    consumer.close()
