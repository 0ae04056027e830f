"""Interfaces that cursors need: the log they belong to, and the ledgers they are stored in.

`Log` is kept by the index of a `managed_ledger.ManagedLedger`, which this package never imports. `Ledgers` is the part
of `quire.ledger.LedgerClient` that managed ledgers and cursors use; tests put a fake with failures and delays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from quire.ledger.errors import LedgerError
from quire.ledger.position import Position
from quire.metadata.store import Op
from quire.wire.bookkeeper.entry import DigestType
from quire.world.doors import Buffer

CustomMetadata: TypeAlias = Sequence[tuple[str, bytes]]


class Quorums(Protocol):
    """Number of bookies of a new ledger, and of those that store each entry."""

    @property
    def ensemble_size(self) -> int: ...

    @property
    def write_quorum(self) -> int: ...

    @property
    def ack_quorum(self) -> int: ...


class NewLedgers(Quorums, Protocol):
    """Quorums and placement of the ledgers that are created from now on."""

    @property
    def placement(self) -> CustomMetadata: ...


class Log(Protocol):
    """The log a cursor belongs to. Everything is answered from memory."""

    @property
    def last_confirmed(self) -> Position: ...

    def last_entry_of(self, ledger_id: int) -> int | None:
        """Return the last confirmed entry of a ledger, -1 if it has none; None if the ledger is not of this log (any
        more)."""

    def next_position(self, position: Position) -> Position:
        """Return the place after `position`: the next entry, or the first entry of the next ledger. It may not be
        written yet."""

    def previous_position(self, position: Position) -> Position:
        """Return the place before `position`: the entry before, or the last entry of an earlier ledger, or entry -1 of
        the first."""

    def first_position(self) -> Position:
        """Return the position of the first entry, existing or future."""

    def count_between(self, after: Position, upto: Position) -> int:
        """Return the number of confirmed entries above `after`, up to and including `upto`."""

    def position_after(self, position: Position, count: int) -> Position:
        """Return the `count`-th confirmed entry above `position`, at least 1; the last one if there are fewer."""


class Readable(Protocol):
    """A ledger with entries to read."""

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """Return payloads from `first` on, at least one, up to `last` (inclusive) and about `size_max` bytes."""


class ReadOnlyLedger(Readable, Protocol):
    """A closed ledger, or one that another broker has open."""

    @property
    def last_entry_id(self) -> int: ...

    @property
    def length(self) -> int: ...

    async def read_unconfirmed(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """Read without a check of what is confirmed, from a ledger opened without recovery; see `read`."""


class Writer(Readable, Protocol):
    """An open ledger of this broker."""

    on_confirmed: Callable[[int, int], None]
    on_failed: Callable[[LedgerError], None]

    @property
    def ledger_id(self) -> int: ...

    @property
    def last_confirmed(self) -> int: ...

    @property
    def last_pushed(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    def append(self, payloads: Sequence[Buffer]) -> int: ...

    def sealed(self, first: int, last: int) -> list[memoryview]: ...

    def rest(self) -> None:
        """Give back memory that only appending needs, unless it is in use."""

    async def close(self) -> None: ...


class Ledgers(Protocol):
    """Creation, opening and deletion of ledgers. Raises LedgerError and, for metadata, MetadataError."""

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        digest_type: DigestType = ...,
        custom_metadata: CustomMetadata = ...,
        high_priority: bool = ...,
        also: Callable[[int], Sequence[Op]] = ...,
    ) -> Writer:
        """Create a ledger. Its metadata and the operations of `also(ledger id)` become durable together or not at all.

        `high_priority`: read-only bookies accept its entries too."""

    async def open(self, ledger_id: int, *, recover: bool) -> ReadOnlyLedger: ...

    async def recover(self, ledger_id: int) -> tuple[int, int]:
        """Fence and close a ledger, unless it is closed; return its last entry, -1 for none, and its payload bytes."""

    async def delete(self, ledger_id: int) -> None: ...
