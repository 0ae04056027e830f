from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import pytest
import trio

from managed_ledger.config import LogConfig, LogConfigSource
from managed_ledger.factory import HOUSE_LOGS_MAX, OPENS_MAX, RECOVERIES_MAX, REST_S, ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.errors import LedgerWriteError
from quire.ledger.position import Position
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import CONFIG, NAME, Cluster, append, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import FakeWriter


async def test_who_opens_at_the_same_time_gets_the_same_log(factory: ManagedLedgerFactory, cluster: Cluster) -> None:
    cluster.ledgers.delay_s = 0.1
    found: list[ManagedLedger] = []

    async def open_it() -> None:
        found.append(await factory.open(NAME))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(open_it)
    assert len({id(log) for log in found}) == 1
    assert cluster.ledgers.listed() == {0}


async def test_an_open_during_a_close_waits_for_it(factory: ManagedLedgerFactory, cluster: Cluster) -> None:
    log = await factory.open(NAME)
    cursor = await log.open_cursor("sub", initial="earliest")
    await publish(log, *numbered(0, 5))
    cursor.ack_individual([Position(0, 0)])
    cluster.ledgers.delay_s = 0.5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.close)
        await trio.sleep(0.1)
        again = await factory.open(NAME)
    assert again is not log
    assert again.cursors["sub"].mark_delete == Position(0, 0)
    assert await read_all(again) == numbered(0, 5)


async def test_many_logs_live_side_by_side_and_close_together(cluster: Cluster) -> None:
    names = [f"t/n/persistent/{number}" for number in range(20)]
    async with cluster.broker() as factory:
        for name in names:
            log = await factory.open(name)
            await log.open_cursor("sub")
            await publish(log, name.encode())
        cluster.ledgers.delay_s = 1
        start = trio.current_time()
        await factory.close()
        assert trio.current_time() - start < 5
        assert factory.managed_ledgers == {}


async def test_a_log_is_opened_with_what_is_said_of_it_by_name(cluster: Cluster) -> None:
    asked: list[str] = []

    async def config_of(name: str) -> LogConfigSource:
        asked.append(name)
        return partial(replace, LogConfig.of(CONFIG), ensemble_size=3, write_quorum=3, ack_quorum=2)

    async with cluster.broker(config_of=config_of) as factory:
        log = await factory.open(NAME)
        assert await factory.open(NAME) is log
        assert asked == [NAME], "one that is open is not asked for"
        assert cluster.ledgers.stored[0].quorums == (3, 3, 2)


async def test_ledgers_of_many_logs_come_of_age_at_different_times(cluster: Cluster) -> None:
    async with cluster.broker(age_max_minutes=100) as factory:
        logs = [await factory.open(f"{NAME}-{number}") for number in range(40)]
        for log in logs:
            await publish(log, b"one")
        rolled = []
        for minute in range(99, 108):
            await trio.sleep(minute * 60 - trio.current_time())
            rolled.append(sum(len(log.ledgers) == 2 for log in logs))
        assert rolled[:2] == [0, 0]
        assert rolled[6:] == [40, 40, 40]
        assert len({*rolled}) >= 5, rolled


async def test_the_cursors_of_a_log_are_recovered_together_but_not_all_at_once(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        await publish(log, b"one")
        for number in range(RECOVERIES_MAX + 1):
            cursor = await log.open_cursor(f"sub-{number}", initial="earliest")
            cursor.ack_individual([Position(0, 0)])
        for cursor in log.cursors.values():
            await cursor.wait_persisted()
        kill(factory)
    cluster.ledgers.delay_s = 1.0
    async with cluster.broker() as factory:
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(factory.open, NAME)
            await trio.sleep(1.5)
            at_once = cluster.ledgers.waiting
        assert at_once == RECOVERIES_MAX
        assert round(trio.current_time() - begun) == 5, "open; twice open and read"
        cluster.ledgers.delay_s = 0.0


async def test_many_logs_are_opened_at_once_but_not_all_at_once(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        names = [f"{NAME}-{number}" for number in range(3 * OPENS_MAX)]
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(factory.open, name)
    cluster.ledgers.log.clear()
    cluster.ledgers.delay_s = 1.0
    async with cluster.broker() as factory:
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(factory.open, name)
            await trio.sleep(0.5)
            at_once = cluster.ledgers.waiting
        assert at_once == OPENS_MAX
        assert round(trio.current_time() - begun) == 9, "three rounds of open, create, created"
        cluster.ledgers.delay_s = 0.0


@pytest.mark.parametrize("fails", [False, True], ids=["stays open", "fails"])
async def test_on_a_full_disk_the_open_ledger_goes_when_everybody_has_consumed_it(
    fails: bool, cluster: Cluster
) -> None:
    full = ""
    async with cluster.broker(no_room=lambda: full, retention_minutes=0, retention_mb=0) as factory:
        log = await factory.open(NAME)
        slow = await log.open_cursor("slow", initial="earliest")
        fast = await log.open_cursor("fast", initial="earliest")
        await publish(log, *numbered(0, 5))
        fast.ack_individual([Position(0, entry) for entry in range(5)])
        slow.ack_individual([Position(0, entry) for entry in range(4)])
        await fast.wait_persisted()
        await slow.wait_persisted()
        assert cluster.ledgers.listed() == {0, 1, 2}
        await trio.sleep(5)
        full = "the disk is full"
        if fails:
            cluster.ledgers.hold = True
            sink = append(log, [b"refused"])
            cast("FakeWriter", log._appends.writer).fail(LedgerWriteError("read-only"))
            await until(lambda: bool(sink.errors))
            cluster.ledgers.hold = False
            cluster.ledgers.release()
        await trio.sleep(5)
        assert 0 in cluster.ledgers.listed(), "one of them needs it"
        slow.ack_individual([Position(0, 4)])
        await trio.sleep(5)
        assert not {0, 1, 2} & cluster.ledgers.listed(), "nor do old entries of cursors keep an entry log"
        made = cluster.ledgers.listed()
        await trio.sleep(60)
        assert cluster.ledgers.listed() == made, "once"
        full = ""
        await publish(log, b"on")
        assert await read_all(log) == [b"on"]
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        assert await read_all(log) == [b"on"]
        assert all(cursor.mark_delete >= Position(0, 4) for cursor in log.cursors.values())


async def test_idle_writers_of_logs_and_cursors_rest_while_the_broker_runs(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await publish(log, b"1")
        cursor.ack_individual([Position(log.last_confirmed.ledger_id, 0)])
        await until(lambda: len(cluster.ledgers.writers) == 2)
        await trio.sleep(REST_S + 2)
        assert all(writer.rests for writer in cluster.ledgers.writers.values())
        await publish(log, b"2")
        assert await read_all(log) == [b"1", b"2"]


async def test_the_housekeeping_of_many_logs_yields_to_other_tasks(cluster: Cluster) -> None:
    async with cluster.broker() as factory:
        log = await factory.open(NAME)
        looked = Looked(log)
        for number in range(3 * HOUSE_LOGS_MAX):
            factory._open[f"{NAME}-{number}"] = cast(ManagedLedger, looked)
        trio.lowlevel.add_instrument(looked)
        await trio.sleep(2)
        trio.lowlevel.remove_instrument(looked)
        for number in range(3 * HOUSE_LOGS_MAX):
            del factory._open[f"{NAME}-{number}"]
        assert 0 < looked.most <= HOUSE_LOGS_MAX


class Looked(trio.abc.Instrument):
    """Stand-in for many logs: the most of them that are looked at in one step."""

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self._now = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._now = 0

    def check_age(self, now: float) -> None:
        self._now += 1
        self.most = max(self.most, self._now)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)
