from __future__ import annotations

from functools import partial

import pytest
import trio

from quire.world.doors import File
from simulation import Universe, run
from simulation.machines.world import in_universe


async def idle(world, stop) -> None:
    await stop.wait()


async def test_a_host_comes_back_with_its_disk_and_its_maps(universe: Universe):
    seen = []

    async def server(world, stop):
        seen.append((world.disk.exists("/f"), [key for key, _ in world.key_value.open("/map").scan(b"", b"z")]))
        world.disk.write_atomic("/f", b"x")
        map_ = world.key_value.open("/map2")
        batch = map_.batch()
        batch.put(b"a", b"")
        map_.write(batch, sync=True)
        await stop.wait()

    host = universe.host("host")
    host.start(server)
    await trio.sleep(1)
    await host.crash()
    assert not host.running
    await host.restart()
    await trio.sleep(1)
    assert host.running
    await host.stop()
    assert not host.running
    assert (host.incarnation, len(host.crashes)) == (2, 1)
    assert seen == [(False, []), (True, [])]


async def test_what_unwinds_after_a_crash_can_do_nothing_and_hides_nothing(universe: Universe):
    reached = []

    async def server(world, stop):
        file = world.disk.open("/f", create=True)
        world.disk.sync_dir("/")
        try:
            await stop.wait()
        finally:
            reached.append("finally")
            file.pwrite(b"too late", 0)
            reached.append("never")

    host = universe.host("host")
    host.start(server)
    await trio.sleep(1)
    await host.crash()
    assert host.disk.read("/f") == b""
    assert reached == ["finally"]


@pytest.mark.parametrize("seed", range(10))
async def test_a_killed_process_leaves_its_page_cache(universe: Universe, seed: int):
    async def server(world, stop):
        world.disk.open("/f", create=True).pwrite(b"unsynced", 0)
        await stop.wait()

    host = universe.host("host")
    host.start(server)
    await trio.sleep(1)
    dropped = await host.crash(lose_unsynced=False)
    assert (host.disk.read("/f"), dropped.writes) == (b"unsynced", 0)


def write_and_sync(file: File) -> None:
    for number in range(9):
        file.pwrite(b"%d" % number, number)
        file.sync()


async def found_after(changes: int, universe: Universe) -> bytes | None:
    """Return the content of the file after a crash at this number of changes; None if it does not exist."""

    async def server(world, stop):
        await stop.wait()
        file = world.disk.open("/f", create=True)
        world.disk.sync_dir("/")
        write_and_sync(file)

    host = universe.host("host")
    host.start(server)
    await trio.sleep(1)
    host.crash_after(changes)
    await host.stop()
    assert len(host.crashes) == 1
    return host.disk.read("/f") if host.disk.paths() else None


@pytest.mark.parametrize("changes", range(6))
def test_crash_after_stops_a_job_before_its_next_change(changes):
    outcomes = {run(seed, partial(found_after, changes)) for seed in range(30)}
    assert outcomes == [{None}, {None, b""}, {b""}, {b"", b"0"}, {b"0"}, {b"0", b"01"}][changes]


async def found_at_sync(syncs: int, universe: Universe) -> tuple[bytes, int]:
    """Return the content of the file after a crash at a sync, and the number of dropped writes."""

    async def server(world, stop):
        file = world.disk.open("/f", create=True)
        world.disk.sync_dir("/")
        await stop.wait()
        write_and_sync(file)

    host = universe.host("host")
    host.start(server)
    await trio.sleep(1)
    host.crash_at_sync(syncs)
    await host.stop()
    assert len(host.crashes) == 1
    return host.disk.read("/f"), host.crashes[0].writes


@pytest.mark.parametrize("syncs", range(4))
def test_crash_at_sync_finds_the_write_done_and_not_synced(syncs):
    synced = b"0123"[:syncs]
    outcomes = {run(seed, partial(found_at_sync, syncs)) for seed in range(30)}
    assert outcomes == {(synced, 1), (synced + b"%d" % syncs, 0)}


async def test_a_crash_before_the_first_step_is_a_crash(universe: Universe):
    ran = []

    async def server(world, stop):
        ran.append(1)

    host = universe.host("host")
    host.start(server)
    await host.crash()
    host.cut_power()
    assert (ran, len(host.crashes)) == ([], 1)


@pytest.mark.seeded
async def test_an_error_that_leaves_main_ends_the_run():
    async def server(world, stop):
        raise KeyError("bug")

    async def live() -> None:
        async with in_universe(1) as universe:
            universe.host("host").start(server)
            await trio.sleep(1000)

    with pytest.raises(BaseExceptionGroup) as failure:
        await live()
    assert failure.group_contains(KeyError)


@pytest.mark.seeded
async def test_tasks_that_all_wait_for_each_other_are_found():
    with pytest.raises(trio.TooSlowError):
        async with in_universe(1):
            await trio.Event().wait()


@pytest.mark.seeded
async def test_a_shield_that_outlasts_its_host_is_found():
    async def server(world, stop):
        with trio.CancelScope(shield=True):
            await trio.sleep(20_000)

    async with in_universe(1, limit_s=100_000) as universe:
        host = universe.host("host")
        host.start(server)
        await trio.sleep(1)
        with pytest.raises(AssertionError, match="shield"):
            await host.crash()


async def test_wall_clocks_differ_between_hosts_and_go_on_with_virtual_time(universe: Universe):
    clocks = [universe.host(name).world().clock for name in ("a", "b", "c")]
    before = [clock.wall_ms() for clock in clocks]
    await trio.sleep(60)
    assert [clock.wall_ms() - then for clock, then in zip(clocks, before, strict=True)] == [60_000] * 3
    assert max(before) - min(before) <= 100
    assert len(set(before)) > 1


def test_each_incarnation_draws_other_choices():
    universe = Universe(1)
    host = universe.host("host")
    draws = []
    for _ in range(2):
        draws.append(host.world().rng.random())
        host.cut_power()
    draws.append(universe.host("other").world().rng.random())
    assert len(set(draws)) == 3
    assert Universe(1).host("host").world().rng.random() == draws[0]
