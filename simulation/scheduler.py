"""Trio under a seed: the order of tasks, the clock, no garbage collector. The only toucher of trio's private names.

Trio shuffles each batch of runnable tasks by its own `Random`; with its flag for deterministic scheduling set it sorts
them by age first, so that the seed alone decides. Both are needed: without the flag the order before the shuffle comes
from sets ordered by address. Source: trio's own tests/test_scheduler_determinism.py, which sets both in this way; the
same test runs here in tests/unit/simulation/test_scheduler.py, to notice when a new trio does it otherwise.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

T = TypeVar("T")


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Within it, `trio.run` takes its scheduling choices from `seed`. Restores what was before. Does not nest."""
    run: Any = trio._core._run
    flag, state, collecting = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), gc.isenabled()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(seed)
    gc.disable()  # finalizers of cycles would run at moments that no seed decides
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = flag
        run._r.setstate(state)
        if collecting:
            gc.enable()


class StepTrace(trio.abc.Instrument):
    """Reports the name of each task that takes a step: the finest history there is."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task.name)


def run_seeded(seed: int, main: Callable[[], Awaitable[T]], *, on_step: Callable[[str], None] | None = None) -> T:
    """`trio.run(main)` under virtual time, which starts at 0 and jumps to the next deadline when every task waits.

    `on_step` is told the name of each task that takes a step.
    """
    instruments = [] if on_step is None else [StepTrace(on_step)]
    with deterministic(seed):
        return trio.run(main, clock=MockClock(autojump_threshold=0), instruments=instruments)
