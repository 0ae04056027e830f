"""Counts what is done in one step of the event loop, for tests of requests of the largest size."""

from __future__ import annotations

import sys
import time
from typing import Any

import trio

CALLS_MAX = 30_000
"""Maximum number of calls of functions in one step; they take less than 10 ms."""


class Counted(trio.abc.Instrument):
    """Largest increase of `now` in one step of the loop."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.now = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, self.now)


class Steps(trio.abc.Instrument):
    """Longest step of any task except the test's, in calls (virtual) or in seconds of CPU (real)."""

    def __init__(self, test: trio.lowlevel.Task, *, real: bool) -> None:
        self._test = test
        self._real = real
        self._before = 0.0
        self._calls = 0
        self.longest = 0.0
        self.where = ""

    def _now(self) -> float:
        return time.thread_time() if self._real else self._calls

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = self._now()
        if not self._real and task is not self._test:
            sys.setprofile(self._called)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        took = self._now() - self._before
        if task is not self._test and took > self.longest:
            self.longest, self.where = took, task.name
