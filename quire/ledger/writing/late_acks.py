"""Waiting for members of an ended ledger that have not acknowledged all confirmed entries.

An entry is confirmed by its ack quorum, so the other members may lack it. They keep their connection for a while; a
ledger that still has such a member then is noted, and auto recovery checks it.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from quire.ledger.context import LedgerContext
from quire.ledger.writing.unacked_notes import WHOLE, note_unacked


class LateAcks:
    """One wait. `owing`: whether a connected member lacks entries; `release` lets go of all members and returns whether
    one still does."""

    __slots__ = ("_answered", "_context", "_ledger_id", "_owing", "_release")

    def __init__(
        self, context: LedgerContext, ledger_id: int, owing: Callable[[], bool], release: Callable[[], bool]
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._owing = owing
        self._release = release
        self._answered = trio.Event()

    def answered(self) -> None:
        """A member has acknowledged something, or is lost."""
        self._answered.set()

    async def wait(self) -> None:
        with trio.move_on_after(self._context.config.add_timeout_s):
            while self._owing():
                self._answered = trio.Event()
                await self._answered.wait()
        if self._release():
            await note_unacked(self._context, self._ledger_id, WHOLE)
