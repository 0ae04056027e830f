"""Reading entries: by the write set, next replica on an error or a mismatch, many entries per request where every bookie has
every entry.

Every payload handed out was checked against its digest, and is a view of the response it came in.

Source: BookKeeper's PendingReadOp, BatchedReadOp.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import trio
from crc32c import crc32c

from quire.ledger.bookie_client import Answer
from quire.ledger.context import LedgerContext
from quire.ledger.errors import (
    BookieError,
    BookieRefusedError,
    BookieUnavailableError,
    DigestMismatchError,
    LedgerError,
    LedgerReadError,
    LedgerUnauthorizedError,
    NoSuchEntryError,
    rc_name,
)
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper import errors as wire_errors
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import METADATA_LENGTH, Digest, DigestType
from quire.wire.bookkeeper.v2 import Rc

_HEADER_CRC32C = Struct("!qqqqI")

READ_SIZE_MAX = v2.FRAME_MAX - 64
"""Most bytes of entries asked for at once."""
SINGLE_READS_MAX = 128
"""Most single reads of one call under way at once."""
SINGLE_READ_GUESS = 4096
"""Bytes per entry taken for granted before the size of entries is known."""


def open_entries(digest: Digest, ledger_id: int, first: int, entries: Sequence[memoryview]) -> list[memoryview]:
    """The payloads of the entries from `first` on, up to the first one that is not what it should be. Pure; the hot loop."""
    payloads: list[memoryview] = []
    add = payloads.append
    if digest.type is not DigestType.CRC32C:
        try:
            for entry_id, entry in enumerate(entries, first):
                add(digest.open(ledger_id, entry_id, entry))
        except wire_errors.DigestMismatchError:
            pass
        return payloads
    unpack = _HEADER_CRC32C.unpack_from
    checksum = crc32c
    overhead = digest.overhead
    expected = first
    for entry in entries:
        if len(entry) < overhead:
            break
        found_ledger, found_entry, _, _, found = unpack(entry)
        payload = entry[overhead:]
        if (
            checksum(payload, checksum(entry[:METADATA_LENGTH])) != found
            or found_entry != expected
            or found_ledger != ledger_id
        ):
            break
        add(payload)
        expected += 1
    return payloads


class ReadFailures:
    """What went wrong at the replicas of one entry, and what that means in the end. Pure.

    Missing everywhere: NoSuchEntryError. Anything worse anywhere: that, since the entry may exist; damage before other
    errors.
    """

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        self._what = f"entry {ledger_id}:{entry_id}"
        self._causes: list[str] = []
        self._worst: type[LedgerError] = NoSuchEntryError
        self.busy = False
        """Whether a bookie refused because it has too much to do: worth another try."""

    def refused(self, bookie_id: str, rc: int) -> None:
        self._causes.append(f"{bookie_id}: {rc_name(rc)}")
        if rc == Rc.UNAUTHORIZED:
            self._worst = LedgerUnauthorizedError
        elif rc not in (Rc.NO_ENTRY, Rc.NO_LEDGER) and self._worst is NoSuchEntryError:
            self._worst = LedgerReadError
        self.busy = self.busy or rc == Rc.TOO_MANY_REQUESTS

    def failed(self, bookie_id: str, error: BookieError) -> None:
        if isinstance(error, BookieRefusedError):
            self.refused(bookie_id, error.rc)
            return
        self._causes.append(f"{bookie_id}: {error}")
        if self._worst is NoSuchEntryError:
            self._worst = LedgerReadError

    def damaged(self, bookie_id: str) -> None:
        self._causes.append(f"{bookie_id}: the digest does not match")
        if self._worst is not LedgerUnauthorizedError:
            self._worst = DigestMismatchError

    def error(self) -> LedgerError:
        return self._worst(f"{self._what} cannot be read: {'; '.join(self._causes)}")


class EntryReads:
    """Reads the entries of one ledger, given its metadata of the moment."""

    def __init__(self, context: LedgerContext, ledger_id: int, digest: Digest, striping: Striping) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._digest = digest
        self._striping = striping
        self._favourite = context.rng.randrange(striping.ensemble_size)
        """Where reads begin if any bookie will do, so that the read-ahead of one bookie serves them."""
        self._batches = not striping.striped

    async def read(
        self, metadata: LedgerMetadata, first: int, last: int, size_max: int, *, size_guess: int
    ) -> list[memoryview]:
        """Payloads of entries from `first` on, at least one, to `last` (inclusive) at most and about `size_max` bytes.

        `size_guess` is the expected size of an entry in bytes. While bookies have too much to do the read is repeated.
        """
        bookies = metadata.fragment_at(first).bookies
        following = [each.first_entry_id for each in metadata.fragments if each.first_entry_id > first]
        last = min(last, following[0] - 1) if following else last
        size_max = max(1, min(size_max, READ_SIZE_MAX))
        config = self._context.config
        give_up_at = trio.current_time() + config.read_timeout_s
        pause = config.retry_pause_s
        while True:
            failures = ReadFailures(self._ledger_id, first)
            payloads: list[memoryview] = []
            if self._batches:
                payloads = await self._read_batch(bookies, first, last, size_max, failures)
            if not self._batches:
                count = max(1, min(last - first + 1, size_max // max(1, size_guess), SINGLE_READS_MAX))
                payloads = await self._read_singly(bookies, first, count, size_max, failures)
            if payloads:
                return payloads
            if not failures.busy or trio.current_time() + pause > give_up_at:
                raise failures.error()
            await trio.sleep(pause)
            pause = min(2 * pause, config.retry_pause_max_s)

    def _replicas(self, entry_id: int) -> list[int]:
        """Ensemble indices that store the entry, in the order in which they are tried."""
        return self._striping.write_set(entry_id if self._striping.striped else self._favourite)

    async def _read_batch(
        self, bookies: Sequence[str], first: int, last: int, size_max: int, failures: ReadFailures
    ) -> list[memoryview]:
        count_max = last - first + 1
        for index in self._replicas(first):
            bookie_id = bookies[index]
            try:
                connection = self._context.bookies.connection(bookie_id)
                response = await connection.read_batch(self._ledger_id, first, count_max, size_max).wait()
            except BookieUnavailableError as error:
                failures.failed(bookie_id, error)
                continue
            if not isinstance(response, v2.BatchResponse) or response.rc in (Rc.BAD_REQUEST, Rc.BAD_VERSION):
                self._batches = False  # A bookie of an older kind: entries one by one from now on.
                return []
            if response.rc != Rc.OK:
                failures.refused(bookie_id, response.rc)
                continue
            payloads = open_entries(self._digest, self._ledger_id, first, response.entries[:count_max])
            if payloads:
                return payloads
            failures.damaged(bookie_id)
        return []

    async def _read_singly(
        self, bookies: Sequence[str], first: int, count: int, size_max: int, failures: ReadFailures
    ) -> list[memoryview]:
        """All entries are asked for at once, each at its first replica; the others are tried one after the other."""
        by_index: dict[int, list[int]] = {}
        for entry_id in range(first, first + count):
            by_index.setdefault(self._replicas(entry_id)[0], []).append(entry_id)
        asked: dict[int, Answer] = {}
        for index, entry_ids in by_index.items():
            try:
                connection = self._context.bookies.connection(bookies[index])
            except BookieUnavailableError:
                continue
            asked.update(zip(entry_ids, connection.read(self._ledger_id, entry_ids), strict=True))
        payloads: list[memoryview] = []
        size = 0
        for entry_id in range(first, first + count):
            of_entry = failures if entry_id == first else ReadFailures(self._ledger_id, entry_id)
            payload = await self._read_one(bookies, entry_id, asked.get(entry_id), of_entry)
            if payload is None:
                break
            size += len(payload)
            if payloads and size > size_max:
                break
            payloads.append(payload)
        return payloads

    async def _read_one(
        self, bookies: Sequence[str], entry_id: int, asked: Answer | None, failures: ReadFailures
    ) -> memoryview | None:
        """The payload of one entry from the first replica that has it; `asked` is what the first one was asked already."""
        for index in self._replicas(entry_id):
            bookie_id = bookies[index]
            try:
                if asked is None:
                    [asked] = self._context.bookies.connection(bookie_id).read(self._ledger_id, [entry_id])
                response = await asked.wait()
            except BookieUnavailableError as error:
                failures.failed(bookie_id, error)
                continue
            finally:
                asked = None
            if not isinstance(response, v2.ReadResponse) or response.rc != Rc.OK:
                failures.refused(bookie_id, response.rc)
                continue
            payloads = open_entries(self._digest, self._ledger_id, entry_id, [response.entry])
            if payloads:
                return payloads[0]
            failures.damaged(bookie_id)
        return None


class LedgerReader:
    """Reads a ledger up to its last confirmed entry, as known when it was opened or last refreshed."""

    def __init__(
        self,
        reads: EntryReads,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        last_entry_id: int,
        length: int,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.last_entry_id = last_entry_id
        """Last entry that may be read, -1 for none; final if the ledger is closed."""
        self.length = length
        """Payload bytes up to that entry."""
        self._reads = reads

    @property
    def closed(self) -> bool:
        """Whether nothing more can come."""
        return self.metadata.state is LedgerState.CLOSED

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """Payloads of entries from `first` on: at least one, at most up to `last` (inclusive) and about `size_max` bytes.

        Fewer than asked for is usual: read on from there. NoSuchEntryError for entries past the last one, and for those
        that all their bookies deny; DigestMismatchError; LedgerReadError; LedgerUnauthorizedError.
        """
        return await read_range(
            self._reads, self.metadata, self.ledger_id, first, min(last, self.last_entry_id), size_max, self.length
        )


async def read_range(
    reads: EntryReads, metadata: LedgerMetadata, ledger_id: int, first: int, last: int, size_max: int, length: int
) -> list[memoryview]:
    """What readers and writers have in common; `last` is within what is confirmed, `length` the bytes of about that much."""
    assert first >= 0, f"entry {first}"
    if first > last:
        raise NoSuchEntryError(f"entry {ledger_id}:{first} is past the last confirmed one")
    size_guess = length // (last + 1) + 1 if length else SINGLE_READ_GUESS
    return await reads.read(metadata, first, last, size_max, size_guess=size_guess)
