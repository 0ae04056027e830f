"""Pace of a scrub: its rate, and pauses that leave the interpreter and the disk to adds.

A step of a scrub runs in a thread of its own, and most of it is Python. While it runs, the event loop and the thread of
the journal wait for the interpreter, up to its switch interval each time that they need it, which for one add is a few
times. A sync may wait behind the step's reads of the disk. So a step is short, and while entries are added a pause of
several times its length follows. Then few adds meet a step, and none meets two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from bookie.bookie import Bookie
from bookie.db_ledger_storage.compaction.throttle import CopyThrottle
from bookie.directories.beside_adds import AddsUnderWay

ROWS: Final = 100
"""Rows or records of a step: about 1 ms of the interpreter."""
STEP_BYTES: Final = 128 << 10
"""The same, whatever quireReadBytesBesideAdds says."""
PAUSES: Final = 4
"""Pause after a step beside adds, in times of the step."""
PAUSE_S_MAX: Final = 1.0
ADDS_RECENT_S: Final = 2.0
"""Seconds after an add in which a scrub expects the next one."""


class ScrubPace:
    """Pace of one scrubber. `adding`: whether entries are being added; `step_bytes`: bytes after which a step ends."""

    def __init__(self, rate: int, adding: Callable[[], bool], step_bytes: int = STEP_BYTES) -> None:
        self.step_bytes = step_bytes
        self._rate = rate
        self._throttle = CopyThrottle(rate)
        self._adding = adding
        self.free_at = 0.0
        """Time of the event loop from which on the next step may begin."""

    @property
    def rate(self) -> int:
        """Return the entries per second."""
        return self._rate

    @rate.setter
    def rate(self, rate: int) -> None:
        self._rate = rate
        self._throttle = CopyThrottle(rate)

    @property
    def rows_max(self) -> int:
        """Return the rows that a step may check: no more than the rate has in a second."""
        return min(ROWS, self._rate)

    def delay(self, now: float, entries: float) -> float:
        """Take entries from the rate; return the seconds to wait before the next ones are read."""
        return self._throttle.delay(now, entries)

    def stepped(self, began: float, ended: float) -> None:
        """Note a step, which puts off the next one if entries are being added.

        >>> adding = [True]
        >>> pace = ScrubPace(60, lambda: adding[0])
        >>> pace.stepped(100.0, 100.25)
        >>> pace.free_at
        101.25
        >>> pace.stepped(102.0, 105.0)
        >>> pace.free_at
        106.0
        >>> adding[0] = False
        >>> pace.stepped(107.0, 107.25)
        >>> pace.free_at
        107.25
        """
        self.free_at = ended + (min(PAUSES * (ended - began), PAUSE_S_MAX) if self._adding() else 0.0)


def pace_of(bookie: Bookie) -> ScrubPace:
    """Return the pace that the bookie's configuration asks for. quireReadBytesBesideAdds=0: adds do not slow it."""
    rate, bytes_max = bookie.config.scrub_rate, bookie.config.read_bytes_beside_adds
    if not bytes_max:
        return ScrubPace(rate, bool)
    now = trio.lowlevel.current_clock().current_time
    adding = AddsUnderWay(bookie.journal.journals, now, recent_s=ADDS_RECENT_S)
    return ScrubPace(rate, adding, min(bytes_max, STEP_BYTES))
