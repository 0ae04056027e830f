"""The contract of `quire.world.doors.Offload`, held by both makers. Quotes are from its docstrings."""

from __future__ import annotations

import trio

from quire.world.doors import Lane
from tests.support.refusals import raises, refuses


async def test_run_gives_the_job_s_result_or_its_error(world):
    """ "Run `job` in some worker." """
    assert await world.offload.run(lambda: 6 * 7, name="answer") == 42
    await raises(ZeroDivisionError, world.offload.run(lambda: 1 // 0))


async def test_run_is_not_cancellable_once_begun(world):
    """ "Not cancellable once begun." """
    ran: list[int] = []
    begun = trio.Event()

    async def call():
        with trio.CancelScope() as scope:
            scopes.append(scope)
            begun.set()
            await world.offload.run(lambda: ran.append(1))
            ran.append(2)

    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, name="call")
        await begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        scopes[0].cancel()
    assert ran == [1, 2]


async def test_a_lane_runs_what_was_queued_in_order_and_reports_in_order(world):
    """ "It takes all queued items, calls `job(items)` off the loop, then `done(items, result, error)` on the loop, in
    order." """
    jobs, reports = [], []
    task = trio.lowlevel.current_task

    def job(items):
        jobs.append(list(items))
        return sum(items)

    def done(items, result, error):
        trio.lowlevel.current_task()  # on the loop: otherwise RuntimeError
        reports.append((list(items), result, error))

    assert task() is not None
    lane = world.offload.lane("sum", job, done)
    for number in range(100):
        lane.put(number)
        if number % 10 == 9:
            await trio.lowlevel.checkpoint()
    await lane.aclose()
    assert [item for items in jobs for item in items] == list(range(100))
    assert reports == [(items, sum(items), None) for items in jobs]


async def test_items_that_come_during_a_run_are_one_run_together(world):
    """ "Meanwhile new items queue up for the next run." """
    runs: list[list[int]] = []
    lane: Lane[int]

    def job(items):
        if not runs:  # as if the loop had put them while this run is under way
            for number in range(1, 51):
                lane.put(number)
        runs.append(list(items))

    reported = trio.Event()
    lane = world.offload.lane("group", job, lambda *report: reported.set())
    lane.put(0)
    await reported.wait()
    await lane.aclose()
    assert [item for items in runs for item in items] == list(range(51))
    assert len(runs) == 2


async def test_a_failing_job_is_reported_and_the_lane_goes_on(world):
    reports = []

    def job(items):
        if items == ["bad"]:
            raise OSError("disk")
        return len(items)

    reported = trio.Event()

    def done(items, result, error):
        reports.append((items, result, str(error)))
        reported.set()

    lane = world.offload.lane("fails", job, done)
    lane.put("bad")
    await reported.wait()
    lane.put("good")
    await lane.aclose()
    assert reports == [(["bad"], None, "disk"), (["good"], 1, "None")]


async def test_aclose_runs_what_is_queued_and_then_put_is_an_error(world):
    """ "Run the queued items, report them, stop. No item is dropped." "It is an error after `aclose`." """
    reported = []
    lane = world.offload.lane("close", lambda items: None, lambda items, result, error: reported.extend(items))
    for number in range(10):
        lane.put(number)
    with trio.CancelScope() as scope:
        scope.cancel()  # even so
        await lane.aclose()
    assert reported == list(range(10))
    refuses(RuntimeError, lambda: lane.put(10))
    await lane.aclose()


async def test_lanes_do_not_wait_for_each_other(world):
    """ "Return a worker with a thread of its own." """
    order = []
    lanes = [
        world.offload.lane(
            name, lambda items: None, lambda items, result, error, name=name: order.append((name, items))
        )
        for name in ("a", "b", "c")
    ]
    for lane in lanes:
        lane.put(1)
    for lane in reversed(lanes):
        await lane.aclose()
    assert sorted(order) == [("a", [1]), ("b", [1]), ("c", [1])]
