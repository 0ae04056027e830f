"""Metadata of a ledger: quorums, state, and the bookies of each range of entries.

These are values, changed by `replace` and stored by compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from quire.metadata.errors import MalformedMetadataError
from quire.wire.bookkeeper.entry import DigestType

NO_ENTRY = -1
NEWEST_FORMAT = 3


class LedgerState(Enum):
    """State of a ledger, with BookKeeper's numbers."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Fragment:
    """Entries from `first_entry_id` up to the next fragment, and their ensemble."""

    first_entry_id: int
    bookies: tuple[str, ...]
    """Bookie ids, in the order of striping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """Metadata of a ledger.

    MalformedMetadataError if an invariant is broken, because bytes written by other programs are decoded into it.

    Invariants: ensemble >= write quorum >= ack quorum > 0; at least one fragment, each with `ensemble_size` different
    bookies, first entry ids strictly ascending (OnlyValidFragments).
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = NO_ENTRY
    """Last entry of a CLOSED ledger, -1 if it is empty; -1 while it is not closed."""
    length: int = 0
    """Payload bytes of a CLOSED ledger; 0 while it is not closed."""
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    password_known: bool = True
    """False for format version 1, which has neither password nor digest type.

    The client that opens the ledger must know both; `digest_type` and `password` mean nothing then.
    """
    ctime_ms: int = -1
    """Creation time, in milliseconds since 1970; -1 if not stored, BookKeeper's default."""
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    format_version: int = NEWEST_FORMAT
    """Format version of the encoded value: 1 to 3."""

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum > 0:
            raise MalformedMetadataError(
                f"a ledger cannot have ensemble {self.ensemble_size}, write quorum {self.write_quorum}"
                f" and ack quorum {self.ack_quorum}"
            )
        if not self.fragments:
            raise MalformedMetadataError("a ledger needs a fragment")
        before = NO_ENTRY
        for fragment in self.fragments:
            if fragment.first_entry_id <= before:
                raise MalformedMetadataError(f"fragment {fragment.first_entry_id} follows fragment {before}")
            if len(fragment.bookies) != self.ensemble_size or len(set(fragment.bookies)) != self.ensemble_size:
                raise MalformedMetadataError(
                    f"an ensemble of {self.ensemble_size} cannot be {', '.join(fragment.bookies) or 'empty'}"
                )
            before = fragment.first_entry_id
        closed = self.state is LedgerState.CLOSED
        if (
            self.last_entry_id < NO_ENTRY
            or self.length < 0
            or (not closed and (self.last_entry_id, self.length) != (-1, 0))
        ):
            raise MalformedMetadataError(
                f"a ledger that is {self.state.name} cannot have last entry {self.last_entry_id}, length {self.length}"
            )
        if not 1 <= self.format_version <= NEWEST_FORMAT:
            raise MalformedMetadataError(f"unknown format version {self.format_version}")

    def password_or(self, password: bytes) -> bytes:
        """Return the ledger's password; `password` if the metadata has none."""
        return self.password if self.password_known else password

    def fragment_at(self, entry_id: int) -> Fragment:
        """Return the fragment that holds, or would hold, an entry (>= 0)."""
        return next(fragment for fragment in reversed(self.fragments) if fragment.first_entry_id <= entry_id)
