from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import trio

from quire.world.doors import World
from simulation import Universe, run
from simulation.machines.power import PowerCut
from tests.support.refusals import raises, refuses


@pytest.mark.parametrize("seed", range(20))
async def test_a_job_takes_virtual_time_and_timeouts_are_not_set_off_by_it(world: World, seed: int):
    begin = trio.current_time()
    with trio.fail_after(300):
        await world.offload.run(lambda: None)
    assert 0.05e-3 <= trio.current_time() - begin <= 0.1


async def ran_more_than_was_reported(universe: Universe) -> bool:
    """Cut the power while a lane has work; return whether more of it ran than was reported."""
    ran: list[object] = []
    reported: list[object] = []

    async def server(world: World, stop: trio.Event) -> None:
        lane = world.offload.lane("lane", ran.extend, lambda items, result, error: reported.extend(items))
        for number in range(30):
            lane.put(number)
            await trio.sleep(0.0004)
        await lane.aclose()

    host = universe.host("host")
    host.start(server)
    await trio.sleep(0.006)
    host.cut_power()
    seen = len(reported)
    await host.wait_down()
    await trio.sleep(10)
    assert len(reported) == seen
    # A run that was carried out but not reported, or was torn by the crash, appears in `ran` only.
    assert ran[: len(reported)] == reported == list(range(len(reported)))
    assert len(reported) < 30
    return len(ran) > len(reported)


def test_a_crash_drops_what_was_queued_and_what_was_not_yet_reported():
    assert {run(seed, ran_more_than_was_reported) for seed in range(100)} == {True, False}


async def unsynced_at_a_crash(kind: str, universe: Universe) -> bool:
    async def server(world: World, stop: trio.Event) -> None:
        file = world.disk.open("/f", create=True)
        world.disk.sync_dir("/")

        def job(items: Sequence[int] = (1,)) -> None:
            for number in items:
                file.pwrite(b"%04d" % number, number * 4)
            file.sync()

        if kind == "lane":
            lane = world.offload.lane("lane", job, lambda *report: None)
            for number in range(1000):
                lane.put(number)
                await trio.sleep(0.0004)
        while True:
            await world.offload.run(job)

    host = universe.host("host")
    host.start(server)
    await trio.sleep(0.01)
    return (await host.crash()).writes > 0


@pytest.mark.parametrize("kind", ["lane", "run"])
def test_a_crash_tears_jobs_between_a_write_and_its_sync(kind):
    """A plain crash without any requested fault must find unsynced writes often enough."""
    assert sum(run(seed, partial(unsynced_at_a_crash, kind)) for seed in range(60)) >= 4


async def test_a_dead_host_s_lane_refuses_and_its_aclose_does_not_hang(universe: Universe):
    seen = []

    async def server(world, stop):
        lane = world.offload.lane("lane", lambda items: None, lambda *report: None)
        try:
            await trio.sleep_forever()
        finally:
            refuses(PowerCut, lambda: lane.put(1))
            with trio.CancelScope(shield=True):
                await raises(PowerCut, lane.aclose())
                await raises(PowerCut, world.offload.run(lambda: None))
            seen.append(1)

    host = universe.host("host")
    host.start(server)
    await trio.sleep(1)
    await host.crash()
    assert seen == [1]


async def test_what_a_lane_reports_to_may_raise_and_that_is_a_fault_of_the_server_as_in_the_real_world(world):
    def boom(*report: object) -> None:
        raise KeyError("confirmed")

    world.faults.watch()
    lane = world.offload.lane("journal", lambda items: None, boom)
    lane.put(1)
    fault = await world.faults.wait()
    lane.put(2)
    await lane.aclose()  # the lane continues
    assert (fault.where, repr(fault.error)) == ("a callback of the thread 'journal'", "KeyError('confirmed')")
