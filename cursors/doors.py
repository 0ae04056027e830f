"""What cursors need of their surroundings: the log they stand in, and the ledgers they are kept in.

`Log` is kept by `managed_ledger.ManagedLedger`, which this package never imports. `Ledgers` is the part of
`quire.ledger.LedgerClient` that managed ledgers and cursors use; tests put a fake with failures and delays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from quire.ledger.errors import LedgerError
from quire.ledger.position import Position
from quire.metadata.store import Op
from quire.world.doors import Buffer

CustomMetadata: TypeAlias = Sequence[tuple[str, bytes]]


class Quorums(Protocol):
    """How many bookies a new ledger has, and how many of them take part in each entry."""

    @property
    def ensemble_size(self) -> int: ...

    @property
    def write_quorum(self) -> int: ...

    @property
    def ack_quorum(self) -> int: ...


class Log(Protocol):
    """The log a cursor stands in. All of it is answered from memory."""

    @property
    def last_confirmed(self) -> Position: ...

    def last_entry_of(self, ledger_id: int) -> int | None:
        """The last confirmed entry of a ledger, -1 if it has none; None if the ledger is not of this log (any more)."""

    def next_position(self, position: Position) -> Position:
        """The place after `position`: the next entry, or the first entry of the next ledger; it may not be written yet."""

    def previous_position(self, position: Position) -> Position:
        """The place before `position`: the entry before, or the last entry of an earlier ledger, or entry -1 of the first."""

    def first_position(self) -> Position:
        """Where the first entry stands or will stand."""

    def count_between(self, after: Position, upto: Position) -> int:
        """Confirmed entries above `after`, up to and with `upto`; 0 if there are none."""


class Readable(Protocol):
    """A ledger with entries to read."""

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """Payloads from `first` on, at least one, up to `last` (inclusive) and about `size_max` bytes."""


class Reader(Readable, Protocol):
    """A closed ledger, or one that another owner has open."""

    @property
    def last_entry_id(self) -> int: ...

    @property
    def length(self) -> int: ...

    async def read_unconfirmed(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        """As `read`, without a look at what is confirmed, of a ledger that was opened without recovery."""


class Writer(Readable, Protocol):
    """An open ledger, ours alone."""

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

    async def close(self) -> None: ...


class Ledgers(Protocol):
    """Makes, opens and deletes ledgers. Raises LedgerError and, for what touches metadata, MetadataError."""

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: CustomMetadata = ...,
        high_priority: bool = ...,
        also: Callable[[int], Sequence[Op]] = ...,
    ) -> Writer:
        """A new ledger. Its metadata and the operations of `also(ledger id)` become durable together or not at all.
        `high_priority`: read-only bookies take its entries too."""

    async def open(self, ledger_id: int, *, recover: bool) -> Reader: ...

    async def delete(self, ledger_id: int) -> None: ...
