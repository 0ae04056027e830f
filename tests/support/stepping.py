"""A command of Quire whose log has each long step of its event loop: `python -m tests.support.stepping standalone ...`.

A step is measured in CPU time of the loop's thread (`Steps`), so it is no longer on a busy machine than on an idle one,
but for the caches of the processor that other processes use up.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import NamedTuple

import trio

from quire.cli.main import main
from tests.support.steps import Steps

LOGGED_MS = 5.0
"""CPU time of a step that is logged."""
COMMAND = [sys.executable, "-m", "tests.support.stepping"]
_LINE = re.compile(r"^long step ms=([0-9.]+) task=(.*)$", re.MULTILINE)


class LongStep(NamedTuple):
    ms: float
    task: str


def long_steps(log: str) -> list[LongStep]:
    """Return the long steps that a part of the log has, the longest first."""
    return sorted((LongStep(float(found[1]), found[2]) for found in _LINE.finditer(log)), reverse=True)


class LoggedSteps(Steps):
    """Steps of which each long one is a line of the output."""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        super().after_task_step(task)
        if 1000 * self.longest_s >= LOGGED_MS:
            print(f"long step ms={1000 * self.longest_s:.1f} task={task.name}", flush=True)
        self.longest_s = 0.0


if __name__ == "__main__":
    trio.run = partial(trio.run, instruments=[LoggedSteps()])  # type: ignore[assignment]
    main()
