"""Trio under a seed: the order of tasks, the clock, no garbage collector. Only this module touches private names of
trio.

Trio shuffles each batch of runnable tasks by its own `Random`; with its flag for deterministic scheduling set it sorts
them by age first, so that the seed alone decides. Both are needed: without the flag the order before the shuffle comes
from sets ordered by address. Source: trio's own tests/test_scheduler_determinism.py, which sets both in this way; the
same test runs here in tests/unit/simulation/machines/test_scheduler.py, to notice when a new trio does it otherwise.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

T = TypeVar("T")

_SEEDED: ContextVar[bool] = ContextVar("seeded", default=False)
HOST: ContextVar[str] = ContextVar("host", default="")
"""Host of a task, inherited from the starting task. "" for the world's own."""

UNPOLLED_MAX = 100
"""Passes in a row with tasks to run, in which the operating system is not asked for events."""


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Make `trio.run` take its scheduling choices from `seed`, while entered. Does not nest."""
    run: Any = trio._core._run
    flag, state, collecting = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), gc.isenabled()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(seed)
    seeded = _SEEDED.set(True)
    gc.disable()  # finalizers of cycles would run at moments that no seed decides
    try:
        yield
    finally:
        _SEEDED.reset(seeded)
        run._ALLOW_DETERMINISTIC_SCHEDULING = flag
        run._r.setstate(state)
        if collecting:
            gc.enable()


def is_deterministic() -> bool:
    """Return whether `deterministic` is entered."""
    return _SEEDED.get()


def virtual_clock() -> MockClock:
    """Return a clock that starts at 0 and jumps to the next deadline when every task waits.

    It gives the same times as `MockClock(autojump_threshold=0)`. That one looks at the machine's clock each time it is
    read, and makes a record of the whole loop for each jump: a tenth of the CPU of a history. While tasks can run, the
    loop also looks for events of sockets and threads only in each `UNPOLLED_MAX`th pass.
    """
    clock = MockClock(autojump_threshold=0)

    def start() -> None:
        MockClock.start_clock(clock)
        runner = _runner()
        runner.io_manager = _SeldomPolled(runner)

    def jump() -> None:
        seconds = _runner().deadlines.next_deadline() - clock._virtual_base
        if 0 < seconds < math.inf:
            clock._virtual_base += seconds

    # MockClock cannot be subclassed, and trio lets no other class jump.
    own: Any = clock
    own.current_time = lambda: clock._virtual_base
    own.deadline_to_sleep_time = lambda deadline: 0 if deadline <= clock._virtual_base else math.inf
    own._autojump = jump
    own.start_clock = start
    return clock


class _SeldomPolled:
    """I/O manager of trio that is not asked for events in most passes that have tasks to run."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._manager = runner.io_manager
        self._unpolled = 0

    def get_events(self, timeout: float) -> Any:
        if self._runner.runq and self._unpolled < UNPOLLED_MAX:
            self._unpolled += 1
            return ()
        self._unpolled = 0
        return self._manager.get_events(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)


class Pauses:
    """Hosts whose tasks do not run, as after SIGSTOP. Messages and deadlines that would wake them wait for the resume.

    Trio takes every runnable task of a pass out of one queue; while a host is paused it is given a queue that holds
    the tasks of paused hosts back.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[Any]] = {}

    def __contains__(self, host: str) -> bool:
        return host in self._held

    def pause(self, host: str) -> None:
        """Pause the host from the next pass on. No effect on a paused one."""
        if host not in self._held:
            self._held[host] = []
            runner = _runner()
            if not isinstance(runner.runq, _HoldingQueue):
                runner.runq = _HoldingQueue(runner.runq, self)

    def resume(self, host: str) -> None:
        """Resume the host; no effect if it is not paused."""
        runner = _runner()
        runner.runq.extend(self._held.pop(host, ()))
        if not self._held and isinstance(runner.runq, _HoldingQueue):
            runner.runq = deque(runner.runq)

    def hold(self, task: Any) -> bool:
        """Keep the task if its host is paused."""
        held = self._held.get(task.context.get(HOST, ""))
        if held is None:
            return False
        held.append(task)
        return True


class _HoldingQueue(deque[Any]):
    """Queue whose iteration takes out the tasks of the pass; trio iterates once per pass, and clears it."""

    def __init__(self, tasks: Any, pauses: Pauses) -> None:
        super().__init__(tasks)
        self._pauses = pauses

    def __iter__(self) -> Iterator[Any]:
        hold = self._pauses.hold
        return iter([task for task in super().__iter__() if not hold(task)])


def _runner() -> Any:
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner


class StepTrace(trio.abc.Instrument):
    """Instrument that reports the name of each task that takes a step, for the finest possible history."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task.name)


def run_seeded(seed: int, main: Callable[[], Awaitable[T]], *, on_step: Callable[[str], None] | None = None) -> T:
    """Run `trio.run(main)` under virtual time, which starts at 0 and jumps to the next deadline when every task waits.

    `on_step` is called with the name of each task that takes a step."""
    instruments = [] if on_step is None else [StepTrace(on_step)]
    with deterministic(seed):
        return trio.run(main, clock=virtual_clock(), instruments=instruments)
