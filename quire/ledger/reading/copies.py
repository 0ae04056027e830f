"""LedgerCopies: the copies of a ledger's entries on single bookies, for repair. Copies are read from one bookie and
written to another, byte for byte as the writer sealed them.

Every returned copy was checked against its digest and its place. Faults of a copy:

    MISSING      the bookie says that it does not have the entry
    DAMAGED      it sent data that is not the entry
    UNKNOWN      it has lost data and does not have the entry: it may have had it
    UNREADABLE   it could not read the entry, e.g. because its disk fails: the copy may exist
    BUSY         it was overloaded for longer than a read may take: the copy may exist
    UNREACHABLE  it did not answer: the copy may exist

Source: BookKeeper's LedgerFragmentReplicator, LedgerChecker (which does not look at digests).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import trio

from quire.ledger.bookies.connection import BookieConnection
from quire.ledger.bookies.pool import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieError, BookieRefusedError, BookieTimeoutError, BookieUnavailableError, rc_name
from quire.ledger.reading.entry_reads import SINGLE_READS_MAX
from quire.ledger.reading.replica_answers import open_entries
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest
from quire.wire.bookkeeper.v2 import Rc

COPY_BYTES = 1 << 20
"""Bytes of entries requested at once, unless the caller chooses another number."""


class CopyFault(Enum):
    """Fault of a copy."""

    MISSING = "missing"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"
    BUSY = "busy"
    UNREACHABLE = "unreachable"


class BadCopy(NamedTuple):
    entry_id: int
    fault: CopyFault
    text: str


class LedgerCopies:
    """Access to single copies, created by `LedgerClient.copies`. Calls may overlap."""

    def __init__(self, context: LedgerContext, ledger_id: int, digest: Digest, key: bytes) -> None:
        self.ledger_id = ledger_id
        self._context = context
        self._digest = digest
        self._key = key
        self._without_batches: set[str] = set()

    # --- reading

    async def read(
        self, bookie_id: str, entry_ids: Sequence[int], *, size_max: int = COPY_BYTES
    ) -> tuple[list[memoryview], BadCopy | None]:
        """Read good copies of the first of `entry_ids` (ascending, at least one), about `size_max` bytes.

        Also return the fault of the copy after them; None if no fault is known: continue reading from there.
        """
        config = self._context.config
        began = trio.current_time()
        backoff = self._context.backoff()
        while True:
            entries, bad = await self._read_once(bookie_id, entry_ids, size_max)
            busy = bad is not None and bad.fault is CopyFault.BUSY
            pause_s = backoff.next()
            took_s = trio.current_time() - began
            if entries or not busy or took_s + pause_s > config.read_timeout_s:
                reads = self._context.stats.reads
                (reads.good if entries else reads.bad).observe(1000 * took_s)
                return entries, None if busy and entries else bad
            await trio.sleep(pause_s)

    async def bad_copies(self, bookie_id: str, entry_ids: Sequence[int], *, count_max: int) -> list[BadCopy]:
        """Return the first `count_max` of these entries of which the bookie has no good copy.

        A bookie that does not answer is not asked further.
        """
        found: list[BadCopy] = []
        at = 0
        while at < len(entry_ids) and len(found) < count_max:
            entries, bad = await self.read(bookie_id, entry_ids[at:])
            at += len(entries)
            if bad is not None:
                found.append(bad)
                at += 1
                if bad.fault is CopyFault.UNREACHABLE:
                    break
        return found

    async def _read_once(
        self, bookie_id: str, entry_ids: Sequence[int], size_max: int
    ) -> tuple[list[memoryview], BadCopy | None]:
        try:
            connection = self._context.bookies.connection(bookie_id)
            consecutive = len(entry_ids) > 1 and entry_ids[-1] - entry_ids[0] == len(entry_ids) - 1
            if consecutive and connection.supports_batch and bookie_id not in self._without_batches:
                found = await self._read_batch(connection, entry_ids[0], len(entry_ids), size_max)
                if found is not None:
                    return found
            return await self._read_single(connection, entry_ids[:SINGLE_READS_MAX], size_max)
        except BookieUnavailableError as error:
            return [], BadCopy(entry_ids[0], CopyFault.UNREACHABLE, f"{bookie_id}: {error}")

    async def _read_batch(
        self, connection: BookieConnection, first: int, count: int, size_max: int
    ) -> tuple[list[memoryview], BadCopy | None] | None:
        """Read with a batch request; None if the bookie does not know batch reads. BookieUnavailableError."""
        body = await connection.read_batch(self.ledger_id, first, count, size_max).wait()
        if not isinstance(body, v2.BatchResponse) or body.rc in (Rc.BAD_REQUEST, Rc.BAD_VERSION):
            self._without_batches.add(connection.bookie_id)
            return None
        if body.rc != Rc.OK or not body.entries:
            return [], self._refused(connection.bookie_id, first, body.rc or Rc.NO_ENTRY)
        entries = body.entries[:count]
        good = len(open_entries(self._digest, self.ledger_id, first, entries))
        if good < len(entries):
            return entries[:good], self._damaged(connection.bookie_id, first + good)
        return entries, None

    async def _read_single(
        self, connection: BookieConnection, entry_ids: Sequence[int], size_max: int
    ) -> tuple[list[memoryview], BadCopy | None]:
        """Read entries one by one. BookieUnavailableError if the first did not arrive."""
        entries: list[memoryview] = []
        size = 0
        for entry_id, answer in zip(entry_ids, connection.read(self.ledger_id, entry_ids), strict=True):
            if size >= size_max:
                break
            try:
                body = await answer.wait()
            except BookieUnavailableError:
                if not entries:
                    raise
                break
            if body.rc != Rc.OK or not isinstance(body, v2.ReadResponse):
                return entries, self._refused(connection.bookie_id, entry_id, body.rc)
            if not open_entries(self._digest, self.ledger_id, entry_id, (body.entry,)):
                return entries, self._damaged(connection.bookie_id, entry_id)
            entries.append(body.entry)
            size += len(body.entry)
        return entries, None

    def _refused(self, bookie_id: str, entry_id: int, rc: int) -> BadCopy:
        fault = CopyFault.UNREADABLE
        if rc in (Rc.NO_ENTRY, Rc.NO_LEDGER):
            fault = CopyFault.MISSING
        elif rc == Rc.UNKNOWN_LEDGER_STATE:
            fault = CopyFault.UNKNOWN
        elif rc == Rc.TOO_MANY_REQUESTS:
            fault = CopyFault.BUSY
        return BadCopy(entry_id, fault, f"{bookie_id}: {rc_name(rc)}")

    def _damaged(self, bookie_id: str, entry_id: int) -> BadCopy:
        self._context.stats.digest_mismatches += 1
        return BadCopy(entry_id, CopyFault.DAMAGED, f"{bookie_id}: the digest does not match")

    # --- writing

    async def write(self, bookie_id: str, entry_ids: Sequence[int], entries: Sequence[memoryview]) -> None:
        """Write copies returned by `read` to a bookie, fenced or not; they are on its disk on return. BookieError."""
        config = self._context.config
        backoff = self._context.backoff()
        give_up_at = trio.current_time() + config.add_timeout_s
        while True:
            refused = await self._write_once(bookie_id, entry_ids, entries, give_up_at)
            if not refused:
                return
            pause_s = backoff.next()
            if trio.current_time() + pause_s > give_up_at:
                text = f"bookie {bookie_id} refused {self.ledger_id}:{entry_ids[0]}: too many requests"
                raise BookieRefusedError(text, Rc.TOO_MANY_REQUESTS)
            await trio.sleep(pause_s)
            again = [place for place, entry_id in enumerate(entry_ids) if entry_id in refused]
            entry_ids = [entry_ids[place] for place in again]
            entries = [entries[place] for place in again]

    async def _write_once(
        self, bookie_id: str, entry_ids: Sequence[int], entries: Sequence[memoryview], give_up_at: float
    ) -> set[int]:
        """Write once; return the entries that the bookie was too busy for. BookieError."""
        adds = _Adds(self.ledger_id, len(entries))
        channel = self._context.bookies.channel(bookie_id, self.ledger_id, adds, 0)
        try:
            channel.send(add_frames(entries, self._key, self._digest.overhead), len(entries))
            with trio.move_on_at(give_up_at):
                await adds.over.wait()
        finally:
            channel.release()
        if adds.error is not None:
            raise adds.error
        if not adds.over.is_set():
            raise BookieTimeoutError(
                f"bookie {bookie_id} did not acknowledge copies of ledger {self.ledger_id} in time"
            )
        return adds.refused


class _Adds:
    """Receiver of the answers to one run of adds."""

    def __init__(self, ledger_id: int, count: int) -> None:
        self.error: BookieError | None = None
        self.refused: set[int] = set()
        """Entries refused because the bookie was too busy."""
        self.over = trio.Event()
        self._ledger_id = ledger_id
        self._left = count

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        if rc == Rc.TOO_MANY_REQUESTS:
            self.refused.update(range(first, last + 1))
        elif rc != Rc.OK and self.error is None:
            text = f"bookie {channel.bookie_id} answered {rc_name(rc)} to the add of {self._ledger_id}:{first}"
            self.error = BookieRefusedError(text, rc)
        self._left -= last - first + 1
        if self._left <= 0:
            self.over.set()

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        self.error = self.error or error
        self.over.set()


def add_frames(entries: Sequence[memoryview], key: bytes, overhead: int) -> list[v2.Frame]:
    """Return recovery adds of whole entries, each with `overhead` bytes before its payload. Pure; the hot loop.

    Small entries are joined, big ones are not copied.
    """
    frames: list[v2.Frame] = []
    parts: list[bytes | memoryview] = []
    add = parts.append
    size = -1
    head = b""
    joined_max = overhead + v2.JOIN_MAX
    for entry in entries:
        if len(entry) != size:
            size = len(entry)
            head = v2.add_head(size, key, v2.RECOVERY_ADD)
        if size <= joined_max:
            add(head)
            add(entry)
            continue
        if parts:
            frames.append(b"".join(parts))
            parts.clear()
        frames.append((head + bytes(entry[:overhead]), entry[overhead:]))
    if parts:
        frames.append(b"".join(parts))
    return frames
