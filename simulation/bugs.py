"""Bugs to plant, one at a time, each of which the histories must find: proof that the checkers bite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from bookie.bookie import Bookie
from bookie.fencing import FenceTable, Waiter
from bookie.journal.writer import GroupWriter
from cursors.cursor import Cursor
from cursors.cursor_store import Persisted
from managed_ledger.appends import Appends
from managed_ledger.pending import PendingAppend
from quire.ledger.position import Position
from quire.world.doors import Buffer, File

Patch = tuple[type, str, object]
"""(class, name of what is replaced in it, by what)"""


def _ack_before_fsync() -> list[Patch]:
    """The journal answers, though nothing was synced."""

    def write(self: GroupWriter, file: File, parts: Sequence[Buffer]) -> None:
        self._write(file, parts)

    return [(GroupWriter, "_write_synced", write)]


def _fence_after_answer() -> list[Patch]:
    """The fencing read is answered at once; its FENCE record is written later."""
    fence: Callable[[Bookie, int, bytes, Waiter], None] = Bookie.fence

    def early(self: Bookie, ledger_id: int, key: bytes, waiter: Waiter) -> None:
        fence(self, ledger_id, key, lambda error: None)
        waiter(None)

    def needs_wait(self: FenceTable, ledger_id: int, fenced: bool) -> bool:
        return not fenced

    return [(Bookie, "fence", early), (FenceTable, "needs_wait", needs_wait)]


def _last_mark_before_index_sync() -> list[Patch]:
    """A checkpoint writes lastMark, and then flushes what lastMark says is flushed."""

    async def checkpoint(self: Bookie) -> None:
        mark = self.journal.mark()
        if mark > self._last_mark:
            await self._write_last_mark(mark)
        await self.storage.flush()
        await self.journal.checkpoint_complete(mark)

    return [(Bookie, "checkpoint", checkpoint)]


def _ack_answered_before_append() -> list[Patch]:
    """An acknowledgement is answered at once; the cursor is stored a moment later."""

    def persisted(self: Cursor, callback: Persisted) -> None:
        callback(None)

    return [(Cursor, "persisted", persisted)]


def _delivery_above_lac() -> list[Patch]:
    """Entries are delivered when they are sent to the bookies, not when they are confirmed."""
    send: Callable[[Appends, PendingAppend], bool] = Appends._send

    def early(self: Appends, run: PendingAppend) -> bool:
        payloads: Sequence[Buffer] = [bytes(payload) for payload in run.payloads or ()]
        sent = send(self, run)
        writer = self.writer
        if sent and writer is not None and writer is not self._failed_writer:
            self._cache.add(writer.ledger_id, run.first, list(payloads), max(1, self.readers), trio.current_time())
            self._index.last_confirmed = Position(writer.ledger_id, writer.last_pushed)
            self._listeners.confirmed()
        return sent

    return [(Appends, "_send", early)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    "ack-before-fsync": _ack_before_fsync,
    "fence-after-answer": _fence_after_answer,
    "lastMark-before-index-sync": _last_mark_before_index_sync,
    "ack-answered-before-append": _ack_answered_before_append,
    "delivery-above-LAC": _delivery_above_lac,
}
"""By name; the docstring says what is wrong."""


@contextmanager
def plant(name: str) -> Iterator[None]:
    """Within it, the servers of this process have the bug `name` of BUGS."""
    patches = BUGS[name]()
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, value in patches:
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)
