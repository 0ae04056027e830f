"""No job in the background ends a bookie: an unexpected error is logged and counted, and the job runs again. Covers
quire/service/background.py and the jobs of bookie/bookie.py and bookie/registration.py."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from bookie import bookie as bookie_module
from bookie.bookie import Bookie, open_bookie
from bookie.metrics import register
from bookie.registration import stay_registered
from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Offload, World
from quire.world.real import real_world
from quire.world.unwrap import leaves
from tests.unit.bookie.build import CONFIG, Client, cluster

T = TypeVar("T")

FAILED = "background job failed"


def failures(bookie: Bookie, job: str) -> int:
    metrics = Metrics()
    register(metrics, bookie, ConnectionCounts())
    line = f'quire_bookie_job_failures{{job="{job}"}} '
    found = [each for each in metrics.exposition().decode().splitlines() if each.startswith(line)]
    return int(float(found[0].removeprefix(line))) if found else 0


@pytest.mark.expect_error(FAILED)
async def test_garbage_collection_goes_on_after_an_error_that_nobody_foresaw(monkeypatch, bookie, client: Client):
    await client.add(7, 0)
    collect = bookie.storage.collect_garbage

    async def broken(*arguments: object) -> object:
        raise struct.error("int too large to convert")

    monkeypatch.setattr(bookie.storage, "collect_garbage", broken)
    round_s = CONFIG.gc_wait_ms / 1000
    await trio.sleep(3.5 * round_s)
    assert failures(bookie, "garbage collection") == 3
    assert await client.add(7, 1) == v2.AddAcks(Rc.OK, 7, 1, 1)
    monkeypatch.setattr(bookie.storage, "collect_garbage", collect)
    await trio.sleep(2 * round_s)
    assert bookie.storage.ledgers() == []


@pytest.mark.expect_error(FAILED, "flushes fail")
async def test_checkpoints_go_on_after_an_error_that_nobody_foresaw(monkeypatch: pytest.MonkeyPatch, bookie: Bookie):
    flush = bookie.storage.flush
    tries: list[float] = []

    async def broken() -> None:
        tries.append(trio.current_time())
        raise struct.error("required argument is not an integer")

    monkeypatch.setattr(bookie.storage, "flush", broken)
    await Client(bookie).add(7, 0)
    await trio.sleep(300)
    pauses = [after - before for before, after in pairwise(tries)]
    assert len(tries) < 15, "with a pause that grows"
    assert pauses == sorted(pauses)
    assert failures(bookie, "checkpoint") == len(tries)
    assert bookie.read_only
    monkeypatch.setattr(bookie.storage, "flush", flush)
    await trio.sleep(120)
    assert not bookie.read_only
    assert bookie.last_mark == bookie.journal.of(0).mark()


@pytest.mark.expect_error(FAILED, "flushes fail")
async def test_a_stop_does_not_wait_for_the_pause_behind_a_failed_checkpoint(monkeypatch, world):
    store = await cluster(MemoryTree(), world)
    async with open_bookie(world, CONFIG, store) as bookie:
        make = bookie._checkpoints.make

        async def broken() -> None:
            raise struct.error("x")

        monkeypatch.setattr(bookie._checkpoints, "make", broken)
        await trio.sleep(200)
        monkeypatch.setattr(bookie._checkpoints, "make", make)
        begun = trio.current_time()
    assert trio.current_time() - begun < 5


@pytest.mark.real_clock
@pytest.mark.expect_error("stop abandoned", "last checkpoint failed")
async def test_a_stop_does_not_wait_for_ever_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bookie_module, "STOP_MAX_S", 0.2)
    config = replace(CONFIG, journal_directories=(f"{tmp_path}/journal",), ledger_directories=(f"{tmp_path}/ledgers",))
    hanging = threading.Event()

    async def main() -> None:
        world = real_world()
        store = await cluster(MemoryTree(), world)
        with trio.fail_after(20):
            async with open_bookie(world, config, store) as bookie:
                await Client(bookie).add(7, 0)
                monkeypatch.setattr(bookie.storage.of(0)._logs, "append", lambda runs: hanging.wait(60))

    try:
        with pytest.raises(ExceptionGroup) as raised:
            await main()
    finally:
        hanging.set()
    assert "a disk does not answer" in str(list(leaves(raised.value)))
    assert (tmp_path / "ledgers/current/DIRTY").exists()


@pytest.mark.parametrize("seed", range(5))
async def test_a_stop_breaks_off_a_garbage_collection_and_waits_for_the_job_that_runs(world: World, seed, monkeypatch):
    store = await cluster(MemoryTree(), world)
    running: list[str] = []
    async with trio.open_nursery() as nursery, open_bookie(world, CONFIG, store) as bookie:
        client = Client(bookie)
        for ledger_id in range(20):
            await client.add(ledger_id, 0)
        offload = type(world.offload)
        run, close = offload.run, bookie.storage.of(0)._close

        async def noted(self: Offload, job: Callable[[], T], *, name: str = "") -> T:
            running.append(name)
            try:
                if name == "ledgers of the index":
                    with trio.CancelScope(shield=True):
                        await trio.sleep(5)
                return await run(self, job, name=name)
            finally:
                running.remove(name)

        def closed() -> None:
            assert running == ["close storage"], "nothing else uses the indexes"
            close()

        monkeypatch.setattr(offload, "run", noted)
        monkeypatch.setattr(bookie.storage, "_close", closed)
        nursery.start_soon(bookie.collect_garbage, store, bookie.instance_id)
        await trio.sleep(world.rng.uniform(0.01, 5))


@pytest.mark.expect_error(FAILED)
async def test_timers_go_on_after_a_call_that_raises(bookie: Bookie) -> None:
    called = trio.Event()

    def broken() -> None:
        raise KeyError("x")

    bookie.timers.at(trio.current_time() + 1, broken)
    bookie.timers.at(trio.current_time() + 2, called.set)
    with trio.fail_after(10):
        await called.wait()
    assert failures(bookie, "timers") == 1


@pytest.mark.expect_error(FAILED)
async def test_a_registered_bookie_is_registered_again_after_an_error_that_nobody_foresaw(monkeypatch, world):
    tree = MemoryTree()
    store = await cluster(tree, world)
    config = replace(CONFIG, gc_wait_ms=10**9)
    async with open_bookie(world, config, store) as bookie, trio.open_nursery() as nursery:
        info = BookieServiceInfo(endpoints=(), properties=())
        await nursery.start(stay_registered, store, bookie, info)
        create = MemoryStore.create
        calls = 0

        async def broken(self: MemoryStore, *arguments: Any, **options: Any) -> str:
            nonlocal calls
            calls += 1
            if calls < 3:
                raise TypeError("x")
            return await create(self, *arguments, **options)

        monkeypatch.setattr(MemoryStore, "create", broken)
        bookie.set_read_only(True)
        await trio.sleep(60)
        assert await bookies.readonly(store) == [config.id]
        assert failures(bookie, "registration") == 2
        nursery.cancel_scope.cancel()
