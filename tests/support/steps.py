"""Duration of one step of the event loop: what a task does from one checkpoint to the next, while nothing else runs."""

from __future__ import annotations

import time

import trio


class Steps(trio.abc.Instrument):
    """Give it to `trio.run(instruments=[...])`. Measured in CPU time of the loop's thread, which a busy machine hardly
    changes."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_task = ""
        self.count = 0
        self._began = 0.0

    def reset(self) -> None:
        """Forget what was measured; call it in front of what is to be measured, behind a checkpoint."""
        self.longest_s, self.longest_task, self.count = 0.0, "", 0
        self._began = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._began
        self.count += 1
        if took > self.longest_s:
            self.longest_s, self.longest_task = took, task.name
