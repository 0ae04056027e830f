"""Waiting for members of an ended ledger that have not acknowledged all confirmed entries.

An entry is confirmed by its ack quorum, so the other members may lack it. They keep their connection for a while; a
ledger that still has such a member then is noted, and auto recovery checks it.
"""

from __future__ import annotations

import trio

from quire.ledger.bookies.pool import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.unacked_notes import WHOLE, note_unacked


class LateAcks:
    """One wait, for those of the `channels` whose bookies lack entries; then all are released."""

    __slots__ = ("_answered", "_channels", "_context", "_ledger_id", "_tracker")

    def __init__(
        self, context: LedgerContext, ledger_id: int, tracker: AckTracker, channels: list[AddChannel | None]
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._tracker = tracker
        self._channels = channels
        self._answered = trio.Event()

    def answered(self) -> None:
        """A member has acknowledged something, or is lost."""
        self._answered.set()

    async def wait(self) -> None:
        with trio.move_on_after(self._context.config.add_timeout_s):
            while self._owing():
                self._answered = trio.Event()
                await self._answered.wait()
        if self._release_all():
            await note_unacked(self._context, self._ledger_id, WHOLE)

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
