from __future__ import annotations

import pytest
import trio

from simulation import Universe, run, run_world
from simulation.machines.power import PowerCut


def test_a_job_takes_virtual_time_and_timeouts_are_not_set_off_by_it():
    async def main(world):
        begin = trio.current_time()
        with trio.fail_after(300):
            await world.offload.run(lambda: None)
        return trio.current_time() - begin

    assert all(0.05e-3 <= run_world(seed, main) <= 0.1 for seed in range(20))


def test_a_crash_drops_what_was_queued_and_what_was_not_yet_reported():
    outcomes = set()
    for seed in range(100):
        ran: list[object] = []
        reported: list[object] = []

        async def server(world, stop, ran=ran, reported=reported):
            lane = world.offload.lane("lane", ran.extend, lambda items, result, error: reported.extend(items))
            for number in range(30):
                lane.put(number)
                await trio.sleep(0.0004)
            await lane.aclose()

        async def story(universe: Universe, server=server, ran=ran, reported=reported):
            host = universe.host("host")
            host.start(server)
            await trio.sleep(0.006)
            host.cut_power()
            seen = len(reported)
            await host.wait_down()
            await trio.sleep(10)
            assert len(reported) == seen

        run(seed, story)
        # A run that was carried out but not reported, or was torn by the crash, appears in `ran` only.
        assert ran[: len(reported)] == reported == list(range(len(reported)))
        assert len(reported) < 30
        outcomes.add(len(ran) > len(reported))
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", ["lane", "run"])
def test_a_crash_tears_jobs_between_a_write_and_its_sync(kind):
    """Reached without any fault asked for: a plain crash must find unsynced writes often enough."""
    dropped = 0
    for seed in range(60):

        async def server(world, stop):
            file = world.disk.open("/f", create=True)
            world.disk.sync_dir("/")

            def job(items=(1,)):
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

        async def story(universe: Universe, server=server):
            host = universe.host("host")
            host.start(server)
            await trio.sleep(0.01)
            return (await host.crash()).writes

        dropped += run(seed, story) > 0
    assert dropped >= 4


def test_a_dead_host_s_lane_refuses_and_its_aclose_does_not_hang():
    async def story(universe: Universe):
        seen = []

        async def server(world, stop):
            lane = world.offload.lane("lane", lambda items: None, lambda *report: None)
            try:
                await trio.sleep_forever()
            finally:
                with pytest.raises(PowerCut):
                    lane.put(1)
                with trio.CancelScope(shield=True):
                    with pytest.raises(PowerCut):
                        await lane.aclose()
                    with pytest.raises(PowerCut):
                        await world.offload.run(lambda: None)
                seen.append(1)

        host = universe.host("host")
        host.start(server)
        await trio.sleep(1)
        await host.crash()
        return seen

    assert run(1, story) == [1]


def test_what_a_lane_reports_to_may_raise_and_that_is_a_fault_of_the_server_as_in_the_real_world():
    def boom(*report: object) -> None:
        raise KeyError("confirmed")

    async def main(world):
        world.faults.watch()
        lane = world.offload.lane("journal", lambda items: None, boom)
        lane.put(1)
        fault = await world.faults.wait()
        lane.put(2)
        await lane.aclose()  # the lane goes on
        return fault

    fault = run_world(1, main)
    assert (fault.where, repr(fault.error)) == ("a callback of the thread 'journal'", "KeyError('confirmed')")
