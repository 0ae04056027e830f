"""Turn: what one pass of the event loop wants to send leaves in one write per connection.

Whoever puts bytes into an outbox marks it here. A pass that knows its end (a chunk was received and worked on) calls
`flush`; marks made elsewhere (a journal group was confirmed) are flushed by the task `run`, in the next step of the
scheduler. So nobody waits, and nobody writes twice.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from quire.world.faults import Faults
from quire.world.outbox import Outbox


class Turn:
    __slots__ = ("_dirty", "_task", "_woken", "faults", "working")

    def __init__(self) -> None:
        self.faults = Faults()
        """Where exceptions of what a flush causes go."""
        self._dirty: dict[Outbox, None] = {}
        self._task: trio.lowlevel.Task | None = None
        self._woken = False
        self.working = False
        """A pass is under way that calls `flush` at its end: nobody needs to be woken for it."""

    def mark(self, outbox: Outbox) -> None:
        """`outbox` has something to send at the end of this pass."""
        if not self.working and self._task is not None and not self._woken:
            self._woken = True
            trio.lowlevel.reschedule(self._task)
        self._dirty[outbox] = None

    def flush(self) -> None:
        """End of a pass: send what is marked."""
        self.working = False
        while self._dirty:
            dirty = self._dirty
            self._dirty = {}
            for outbox in dirty:
                outbox.flush()

    async def run(self) -> None:
        """Flush whatever was marked outside of a pass with an end of its own. Runs until cancelled."""

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            if self._dirty:
                self.faults.call("the end of a pass", self.flush)
                await trio.lowlevel.cancel_shielded_checkpoint()
                continue
            self._task = trio.lowlevel.current_task()
            self._woken = False
            await trio.lowlevel.wait_task_rescheduled(abort)
            self._task = None
