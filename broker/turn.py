"""Turn: the output of one pass of the event loop leaves in one write per connection.

Code that puts bytes into an outbox marks it here. A pass that knows its end (a chunk was received and worked on) calls
`flush`; marks made elsewhere (a journal group was confirmed) are flushed by the task `run`, in the next step of the
scheduler. So no output waits, and none is written twice.

A pass is also bounded in what subscriptions do in it (`left`). What has to go on is put off with `later`: the task
`run` calls it in a step of its own, in order, so that others have their turn between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from quire.world.faults import Faults
from quire.world.outbox import Outbox

PASS_WORK = 4000
"""Work of all subscriptions in one pass, in units of about one entry.

4000 entries to an Exclusive consumer, 1300 to Shared or 500 to Key_Shared ones take 2 to 5 ms each. So one FLOW of an
official client (half of its queue, 500) is served in one pass."""


class Turn:
    __slots__ = ("_dirty", "_later", "_task", "_woken", "faults", "left", "working")

    def __init__(self) -> None:
        self.faults = Faults()
        """Handler of exceptions raised in a flush."""
        self._dirty: dict[Outbox, None] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._task: trio.lowlevel.Task | None = None
        self._woken = False
        self.working = False
        """True while a pass is under way that calls `flush` at its end, so that no task has to be woken."""
        self.left = PASS_WORK
        """Remaining work of the pass; may go below 0. A subscription that finds 0 or less goes on `later`."""

    def mark(self, outbox: Outbox) -> None:
        """Mark `outbox`: it has something to send at the end of this pass."""
        if not self.working:
            self._wake()
        self._dirty[outbox] = None

    def later(self, work: Callable[[], None]) -> None:
        """Call `work` in a later step of the event loop, after work deferred earlier."""
        self._wake()
        self._later.append(work)

    @property
    def busy(self) -> bool:
        """Return whether any work was deferred."""
        return bool(self._later)

    def _wake(self) -> None:
        if self._task is not None and not self._woken:
            self._woken = True
            trio.lowlevel.reschedule(self._task)

    def flush(self) -> None:
        """Send the marked output at the end of a pass."""
        self.working = False
        self.left = PASS_WORK
        try:
            while self._dirty:
                dirty = self._dirty
                self._dirty = {}
                for outbox in dirty:
                    outbox.flush()
        except Exception as error:
            # Not the fault of the connection whose pass this is: what the other outboxes hold may never leave.
            self.faults.raised("the end of a pass", error)

    def step(self) -> None:
        """Send the marked output, then run one pass of the deferred work."""
        self.flush()
        if self._later:
            self.working = True
            try:
                while self._later and self.left > 0:
                    self._later.popleft()()
            finally:
                self.flush()

    async def run(self) -> None:
        """Do, step by step, what was put off, and flush whatever was marked outside of a pass with an end of its own.
        Runs until cancelled."""

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            if self._dirty or self._later:
                self.faults.call("the end of a pass", self.step)
                await trio.lowlevel.cancel_shielded_checkpoint()
                continue
            self._task = trio.lowlevel.current_task()
            self._woken = False
            await trio.lowlevel.wait_task_rescheduled(abort)
            self._task = None
