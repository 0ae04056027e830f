"""quire.service.task_tree"""

from __future__ import annotations

import os
import signal
from functools import partial

import trio

from quire.servers.process import run_server
from quire.service import task_tree
from quire.service.log import Event


async def waits_for_ever(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    task_status.started()
    await trio.sleep_forever()


async def serve_and_signal(log_events: list[Event], stop: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(waits_for_ever, name="broker 127.0.0.1:51234")
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(500):
            await trio.sleep(0.01)
            if any(event.get("task") == "broker 127.0.0.1:51234" for event in log_events):
                break
        assert not stop.is_set()
        nursery.cancel_scope.cancel()


def test_a_signal_writes_the_tree_of_tasks_into_the_log(log_events: list[Event]) -> None:
    assert run_server("test", partial(serve_and_signal, log_events)) == 0
    tasks = [event for event in log_events if event["event"] == "task"]
    (found,) = [event for event in tasks if event["task"] == "broker 127.0.0.1:51234"]
    assert "test_task_tree.py" in found["at"]
    assert found["at"].endswith(" waits_for_ever")
    assert found["waits_in"] == "sleep_forever"
    main = next(event for event in tasks if event["task"].endswith("_serve_with_signals"))
    assert found["depth"] == main["depth"] + 1, "it is below the task that has its nursery"


async def test_other_tasks_go_on_meanwhile_and_the_lines_are_bounded(log_events: list[Event], monkeypatch) -> None:
    monkeypatch.setattr(task_tree, "TASKS_MAX", 50)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(waits_for_ever)
        nursery.start_soon(count)
        before = turns
        await task_tree.log_task_tree()
        assert turns > before
        nursery.cancel_scope.cancel()
    assert len([event for event in log_events if event["event"] == "task"]) == 50
    (more,) = [event for event in log_events if event["event"] == "task tree goes on"]
    assert more["more_tasks"] > 50
