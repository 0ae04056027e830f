"""Answers of the replicas of an entry: checked payloads, and the error that a set of failures amounts to. Pure.

Source: BookKeeper's DigestManager, PendingReadOp.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from quire.ledger.errors import (
    BookieError,
    BookieRefusedError,
    DigestMismatchError,
    LedgerError,
    LedgerReadError,
    LedgerUnauthorizedError,
    NoSuchEntryError,
    rc_name,
)
from quire.wire.bookkeeper import errors as wire_errors
from quire.wire.bookkeeper.entry import METADATA_LENGTH, Digest, DigestType
from quire.wire.bookkeeper.v2 import Rc

_HEADER_CRC32C = Struct("!qqqqI")


def open_entries(digest: Digest, ledger_id: int, first: int, entries: Sequence[memoryview]) -> list[memoryview]:
    """Return the payloads of the entries from `first` on, up to the first invalid one. Pure; the hot loop."""
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
    """Failures at the replicas of one entry, and the resulting error. Pure.

    Missing everywhere gives NoSuchEntryError. Any other failure takes precedence, because the entry may exist; damage
    comes before other errors.
    """

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        self._what = f"entry {ledger_id}:{entry_id}"
        self._causes: list[str] = []
        self._worst: type[LedgerError] = NoSuchEntryError
        self.busy = False
        """True if a bookie refused because it is overloaded: worth another try."""

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
