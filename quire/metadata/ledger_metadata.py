"""What a ledger is: quorums, state, and which bookies hold which entries. Values; changed by `replace` and stored by
compare-and-set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from quire.metadata.errors import MalformedMetadataError
from quire.wire.bookkeeper.entry import DigestType

NO_ENTRY = -1
NEWEST_FORMAT = 3


class LedgerState(Enum):
    """The numbers are BookKeeper's."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Fragment:
    """The entries from `first_entry_id` up to the next fragment, and the ensemble that holds them."""

    first_entry_id: int
    bookies: tuple[str, ...]
    """Bookie ids; the order is the stripe position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """MalformedMetadataError if an invariant is broken: the bytes of others come this way.

    Invariants: ensemble >= write quorum >= ack quorum > 0; at least one fragment, each with `ensemble_size` different
    bookies, first entry ids strictly growing (OnlyValidFragments).
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = NO_ENTRY
    """The last entry of a CLOSED ledger, -1 if it is empty; -1 while it is not closed."""
    length: int = 0
    """Payload bytes of a CLOSED ledger; 0 while it is not closed."""
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    password_known: bool = True
    """False for format version 1, which keeps neither password nor digest type: whoever opens the ledger must know
    both; `digest_type` and `password` say nothing then."""
    ctime_ms: int = -1
    """Creation, in milliseconds since 1970; -1 for "not kept", as BookKeeper does by default."""
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    format_version: int = NEWEST_FORMAT
    """How the value is, or is to be, encoded: 1 to 3."""

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
            raise MalformedMetadataError(f"there is no format version {self.format_version}")

    def password_or(self, password: bytes) -> bytes:
        """The ledger's password; `password` if its metadata do not tell."""
        return self.password if self.password_known else password

    def fragment_at(self, entry_id: int) -> Fragment:
        """The fragment that holds, or would hold, an entry (>= 0)."""
        return next(fragment for fragment in reversed(self.fragments) if fragment.first_entry_id <= entry_id)
