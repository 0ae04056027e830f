"""The tree of trio's tasks, for the log: what runs in a server, and where each task waits.

event=task depth=3 task="broker 127.0.0.1:51234" at="broker/connections/connection.py:151 _read" waits_in=receive_some
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trio

from quire.service.log import get_logger

TASKS_MAX = 2000
"""Tasks that are named; the others are counted."""
TASKS_IN_STEP = 20
"""Lines that are written before other tasks have their turn: about 2 ms."""

_ROOT = f"{Path(__file__).resolve().parents[2]}/"

log = get_logger(__name__)


class TaskPlace(NamedTuple):
    """Place of a task: the innermost line of code that is not a library's, and the
    library's function that it called there (empty: none)."""

    at: str
    waits_in: str


def place_of(task: trio.lowlevel.Task) -> TaskPlace:
    """Return where a task is."""
    at, waits_in = "", ""
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        if "/site-packages/" not in code.co_filename and "/lib/python" not in code.co_filename:
            at, waits_in = f"{code.co_filename.removeprefix(_ROOT)}:{line} {code.co_name}", ""
        elif not waits_in:
            waits_in = code.co_name
    return TaskPlace(at, waits_in)


def walk(root: trio.lowlevel.Task) -> Iterator[tuple[int, trio.lowlevel.Task]]:
    """Yield every task below and with `root`, parents first, with its depth."""
    left = [(0, root)]
    while left:
        depth, task = left.pop()
        yield depth, task
        children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        left += [(depth + 1, child) for child in sorted(children, key=lambda child: child.name, reverse=True)]


async def log_task_tree() -> None:
    """Write a line for each task, in steps: other tasks go on meanwhile, so one that has ended since then is left
    out."""
    root = trio.lowlevel.current_root_task()
    if root is None:
        return
    tasks = list(walk(root))
    log.info("task tree", tasks=len(tasks))
    for number, (depth, task) in enumerate(tasks[:TASKS_MAX], start=1):
        if task.parent_nursery is not None or task is root:
            at, waits_in = place_of(task)
            log.info("task", depth=depth, task=task.name, at=at, waits_in=waits_in)
        if number % TASKS_IN_STEP == 0:
            await trio.lowlevel.checkpoint()
    if len(tasks) > TASKS_MAX:
        log.info("task tree goes on", more_tasks=len(tasks) - TASKS_MAX)
