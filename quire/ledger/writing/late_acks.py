"""Waiting for members of an ended ledger that have not acknowledged all confirmed entries.

An entry is confirmed by its ack quorum, so the other members may lack it. They keep their connection for a while. A
ledger that still has such a member after a moment is noted, and auto recovery checks it.

The note is stored before the ledger is stored as closed: from then on no recovery looks at it, so after a crash of this
process nothing else would lead to the missing copies before the next check of all ledgers (found by simulation: cluster
seed 1310007 with full disks). If the members answer later, it is withdrawn, which spares the check. A ledger that its
writer could not close is recovered, and recovery notes it.
"""

from __future__ import annotations

from typing import Final

import trio

from quire.ledger.bookies.pool import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.unacked_notes import WHOLE, note_unacked, withdraw_note

GRACE_S: Final = 0.05
"""Seconds that the close of a ledger waits for members before it is noted: longer than a bookie usually is behind."""


class LateAcks:
    """One wait, for those of the `channels` whose bookies lack entries; then all are released."""

    __slots__ = ("_answered", "_channels", "_context", "_is_noted", "_ledger_id", "_tracker")

    def __init__(
        self, context: LedgerContext, ledger_id: int, tracker: AckTracker, channels: list[AddChannel | None]
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._tracker = tracker
        self._channels = channels
        self._answered = trio.Event()
        self._is_noted = False

    def answered(self) -> None:
        """A member has acknowledged something, or is lost."""
        self._answered.set()

    async def wait(self) -> None:
        """Wait for the members and release all. If one lacks entries, have the ledger noted, else withdraw the note."""
        await self._wait(self._context.config.add_timeout_s)
        if self._release_all():
            await self._note()
        elif self._is_noted:
            await withdraw_note(self._context, self._ledger_id)

    async def note(self) -> None:
        """Wait for a moment, and have the ledger noted if a member lacks entries then."""
        await self._wait(GRACE_S)
        if self._tracker.lacking():
            await self._note()

    async def _note(self) -> None:
        if not self._is_noted:
            self._is_noted = await note_unacked(self._context, self._ledger_id, WHOLE)

    async def _wait(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while self._owing():
                if self._answered.is_set():
                    self._answered = trio.Event()
                await self._answered.wait()

    def _owing(self) -> bool:
        return any([self._channels[index] is not None for index in self._tracker.lacking()])

    def _release_all(self) -> bool:
        """Let go of all members; return whether one lacks confirmed entries."""
        late = bool(self._tracker.lacking())
        for index, channel in enumerate(self._channels):
            self._channels[index] = None
            if channel is not None:
                channel.release()
        return late
