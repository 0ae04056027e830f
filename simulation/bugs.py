"""Bugs to plant, one at a time, each of which the histories must find: proof that the checkers bite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

import trio

from bookie.bookie import Bookie
from bookie.fencing import FenceTable
from bookie.journal.writer import GroupWriter
from cursors.cursor import Cursor
from cursors.cursor_store import Persisted
from managed_ledger.appends import Appends
from managed_ledger.pending import PendingAppend
from quire.ledger import recovery
from quire.ledger.ack_tracker import AckTracker
from quire.ledger.context import LedgerContext
from quire.ledger.last_confirmed import LastConfirmed, read_last_confirmed
from quire.ledger.position import Position
from quire.ledger.recovery_rules import FenceCoverage
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest
from quire.world.doors import Buffer, File

Patch = tuple[type | ModuleType, str, object]
"""(class or module, name of what is replaced in it, by what)"""


def _ack_before_fsync() -> list[Patch]:
    """The journal answers, though nothing was synced."""

    def write(self: GroupWriter, file: File, parts: Sequence[Buffer]) -> None:
        self._write(file, parts)

    return [(GroupWriter, "_write_synced", write)]


def _fence_after_answer() -> list[Patch]:
    """The fencing read is answered at once; its FENCE record is written later."""
    fence: Callable[[Bookie, int, bytes | None, Callable[[v2.Rc], None]], None] = Bookie.fence

    def early(self: Bookie, ledger_id: int, key: bytes | None, done: Callable[[v2.Rc], None]) -> None:
        fence(self, ledger_id, key, lambda rc: None)
        done(v2.Rc.OK)

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


def _recovery_reads_do_not_fence() -> list[Patch]:
    """Recovery fences only while it asks for the last add confirmed, not with each entry that it reads."""
    return [(recovery, "RECOVERY_READ", v2.HIGH_PRIORITY)]


def _lac_bound_removed() -> list[Patch]:
    """Recovery begins at the highest LAC that the bookies of the last ensemble tell, though all before that ensemble is confirmed."""

    async def unbound(
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        password: bytes,
        *,
        fence: bool,
    ) -> LastConfirmed:
        last = replace(metadata.fragments[-1], first_entry_id=0)
        return await read_last_confirmed(
            context, ledger_id, replace(metadata, fragments=(last,)), digest, password, fence=fence
        )

    return [(recovery, "read_last_confirmed", unbound)]


def _coverage_loosened() -> list[Patch]:
    """Recovery goes on when one more bookie of each write set is not known to be fenced than may be."""

    def covered(self: FenceCoverage) -> bool:
        return all(
            sum([not self._known[index] for index in write_set]) <= self._ack_quorum for write_set in self._write_sets
        )

    return [(FenceCoverage, "covered", property(covered))]


def _acks_of_replaced_kept() -> list[Patch]:
    """What a bookie acknowledged counts, though another stands in its place."""

    def replaced(self: AckTracker, index: int) -> None:
        self._failed[index] = False

    return [(AckTracker, "replaced", replaced)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    "ack-before-fsync": _ack_before_fsync,
    "fence-after-answer": _fence_after_answer,
    "lastMark-before-index-sync": _last_mark_before_index_sync,
    "ack-answered-before-append": _ack_answered_before_append,
    "delivery-above-LAC": _delivery_above_lac,
    "recovery-reads-do-not-fence": _recovery_reads_do_not_fence,
    "LAC-bound-removed": _lac_bound_removed,
    "coverage-loosened": _coverage_loosened,
    "acks-of-replaced-kept": _acks_of_replaced_kept,
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
