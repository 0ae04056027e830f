"""The auditor and its election on a real ZooKeeper."""

from __future__ import annotations

from contextlib import AsyncExitStack
from random import Random

import pytest
import trio

from autorecovery.auditing.auditor import Auditor
from autorecovery.auditing.election import AuditorElection, read_auditor
from autorecovery.config import AutoRecoveryConfig
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.metadata import bookies
from quire.metadata.ledgers import initialize_layout
from quire.metadata.zookeeper.store import SessionExpiredPolicy, ZooKeeperStore
from tests.support.zookeeper import expire, opened, own_root, shared_server, until
from tests.unit.autorecovery.cluster import Cluster, closed

pytestmark = pytest.mark.cluster

RECONNECT = SessionExpiredPolicy.RECONNECT
BASE = "/ledgers/underreplication"


class Process:
    """A candidate with its auditor."""

    def __init__(self, name: str, store: ZooKeeperStore) -> None:
        self.store = store
        cluster = Cluster()
        self.marks = UnderreplicatedLedgers(store, rng=Random(1), wall_ms=lambda: 1_795_258_634_733, owner=name)
        self.ledgers = cluster.ledgers_of(store)
        auditor = Auditor(store, self.ledgers, self.marks, AutoRecoveryConfig(), wall_ms=cluster.wall_ms, rng=Random(1))
        self.election = AuditorElection(store, auditor.run, bookie_id=name)

    async def marked(self) -> dict[int, tuple[str, ...]]:
        return {mark.ledger_id: mark.replicas async for mark in self.marks.list()}


@pytest.mark.real_clock
async def test_lost_bookies_are_marked_by_whoever_is_the_auditor_and_repaired_ledgers_leave_nothing() -> None:
    config = shared_server().config(own_root(), policy=RECONNECT)
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        b1, b2, b3, s1, s2 = [await stack.enter_async_context(opened(config)) for _ in range(5)]
        await initialize_layout(s1, rng=Random(2))
        for bookie_id, store in (("b1", b1), ("b2", b2), ("b3", b3)):
            await register(store, bookie_id)
        one, two = Process("a1:3181", s1), Process("a2:3181", s2)
        for members in (("b1", "b2"), ("b2", "b3"), ("b1", "b3")):
            await one.ledgers.manager.create(closed(*members))
        for process in (one, two):
            await nursery.start(process.election.run)
        await until(lambda: holds(one.election.is_auditor), "the first is the auditor")
        assert await read_auditor(s2) == "a1:3181"

        await b1.aclose()
        await until(lambda: is_marked(one, {0: ("b1",), 2: ("b1",)}), "the lost bookie's ledgers are marked")
        node = await s2.get(f"{BASE}/ledgers/0000/0000/0000/0002/urL0000000002")
        assert node is not None
        assert node.value == b'replica: "b1"\nctime: 1795258634733\n'

        # The auditor's session ends: it stops, the other goes on, and the first is a candidate again.
        await expire(s1, shared_server().port)
        await until(lambda: holds(two.election.is_auditor), "the second is the auditor")
        await until(lambda: holds(one.election.attempts == 2 and not one.election.is_auditor), "the first stood again")
        await b3.aclose()
        await until(
            lambda: is_marked(two, {0: ("b1",), 1: ("b3",), 2: ("b1", "b3")}),
            "the second bookie's ledgers are marked",
        )
        auditor = await s1.get(f"{BASE}/auditorelection")
        assert auditor is not None
        assert auditor.value == b'bookieId: "a2:3181"\n'

        # Workers share the ledgers, are woken by each mark and each lock that goes, and leave nothing.
        locked = [await one.marks.lock_next(), await two.marks.lock_next(), await one.marks.lock_next()]
        assert sorted(each.ledger_id for each in locked if each is not None) == [0, 1, 2]
        assert await two.marks.lock_next() is None
        woken = trio.Event()

        async def wait() -> None:
            await two.marks.wait_for_work()
            woken.set()

        nursery.start_soon(wait)
        assert locked[0] is not None
        await one.marks.release(locked[0])
        with trio.fail_after(10):
            await woken.wait()
        again = await two.marks.lock_next()
        assert again is not None
        assert again.ledger_id == locked[0].ledger_id
        for marks, each in ((two.marks, again), (two.marks, locked[1]), (one.marks, locked[2])):
            assert each is not None
            assert await marks.done(each)
        assert await s1.children(f"{BASE}/ledgers") == []
        assert await s1.children(f"{BASE}/locks") == []
        nursery.cancel_scope.cancel()


async def register(store: ZooKeeperStore, bookie_id: str) -> None:
    info = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host="127.0.0.1", port=3181),))
    await bookies.register(store, bookie_id, info)


async def holds(condition: bool) -> bool:
    await trio.lowlevel.checkpoint()
    return condition


async def is_marked(process: Process, expected: dict[int, tuple[str, ...]]) -> bool:
    return await process.marked() == expected
