"""Ledgers as the cluster pages count them (pure): compact rows of very many, and their copies by bookie.

    LedgerTable     one row per examined ledger, in arrays: 10^5 take 4 MB
    Layout          quorums and fragments; ledgers with the same ones share it
    owners          topic, cursor or other user of a ledger, from its custom metadata; shared by its ledgers

Why this is hard: the answer to "where are the copies" must be exact for 10^5 ledgers with a hundred bookies, and must
neither fill the memory of a broker nor hold its loop. Entries of a member are counted by arithmetic, never one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from quire.ledger.striping import striping_of
from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState

OPEN_END: Final = -2
"""Last entry of a ledger that is not closed: unknown. -1 is that of a closed ledger without entries."""
NAMES: Final = {
    "pulsar/managed-ledger": "topic",
    "pulsar/schemaId": "schema",
    "pulsar/compactedTopic": "compacted",
}


class FragmentRow(NamedTuple):
    """A fragment: its first entry, and the numbers of its bookies in the order of striping."""

    first: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Quorums and fragments of ledgers."""

    write_quorum: int
    ack_quorum: int
    fragments: tuple[FragmentRow, ...]

    @property
    def ensemble_size(self) -> int:
        return len(self.fragments[0].members)


class LedgerOwner(NamedTuple):
    """User of a ledger."""

    kind: str
    """topic, cursor, schema, compacted or other."""
    name: str
    """Full name of the topic, the id of a schema; empty if it is not known."""
    part: str = ""
    """Name of the subscription of a cursor."""

    def as_json(self) -> dict[str, str]:
        """Return the owner as a JSON object."""
        return self._asdict()


class TableRow(NamedTuple):
    """One ledger."""

    ledger_id: int
    layout: Layout
    last: int
    """Last entry; -1: closed and empty; OPEN_END: it is not closed."""
    length: int
    """Payload bytes of a closed ledger."""
    owner: int
    """Number of its owner in the table."""

    @property
    def is_open(self) -> bool:
        return self.last == OPEN_END

    def spans(self) -> Iterator[tuple[FragmentRow, int]]:
        """Yield each fragment that may have entries, with its last entry; OPEN_END: it is not known."""
        fragments = self.layout.fragments
        for place, fragment in enumerate(fragments):
            is_last = place == len(fragments) - 1
            last = self.last if is_last else fragments[place + 1].first - 1
            if last == OPEN_END or last >= fragment.first:
                yield fragment, last


class LedgerTable:
    """Table of ledgers, of which rows are only added."""

    def __init__(self) -> None:
        self.bookies: list[str] = []
        """Ids of all bookies that a ledger names, by number."""
        self.owners: list[LedgerOwner] = []
        self._bookie_numbers: dict[str, int] = {}
        self._owner_numbers: dict[LedgerOwner, int] = {}
        self._layouts: list[Layout] = []
        self._layout_numbers: dict[Layout, int] = {}
        self._ids = array("q")
        self._lasts = array("q")
        self._lengths = array("q")
        self._layout_of = array("I")
        self._owner_of = array("I")

    def __len__(self) -> int:
        return len(self._ids)

    def number(self, bookie_id: str) -> int | None:
        """Return the number of a bookie; None: no ledger names it."""
        return self._bookie_numbers.get(bookie_id)

    def add(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Add the row of a ledger."""
        fragments = tuple(
            FragmentRow(each.first_entry_id, tuple(self._number_of(bookie) for bookie in each.bookies))
            for each in metadata.fragments
        )
        layout = Layout(metadata.write_quorum, metadata.ack_quorum, fragments)
        number = self._layout_numbers.get(layout)
        if number is None:
            number = self._layout_numbers[layout] = len(self._layouts)
            self._layouts.append(layout)
        owner = owner_of(metadata.custom_metadata)
        owner_number = self._owner_numbers.get(owner)
        if owner_number is None:
            owner_number = self._owner_numbers[owner] = len(self.owners)
            self.owners.append(owner)
        self._ids.append(ledger_id)
        self._lasts.append(metadata.last_entry_id if metadata.state is LedgerState.CLOSED else OPEN_END)
        self._lengths.append(metadata.length)
        self._layout_of.append(number)
        self._owner_of.append(owner_number)

    def _number_of(self, bookie_id: str) -> int:
        number = self._bookie_numbers.get(bookie_id)
        if number is None:
            number = self._bookie_numbers[bookie_id] = len(self.bookies)
            self.bookies.append(bookie_id)
        return number

    def row(self, place: int) -> TableRow:
        """Return the row at a place, from 0 on."""
        layout = self._layouts[self._layout_of[place]]
        return TableRow(self._ids[place], layout, self._lasts[place], self._lengths[place], self._owner_of[place])

    def rows(self, first: int = 0) -> Iterator[TableRow]:
        """Yield the rows from a place on, in the order in which they were added."""
        for place in range(first, len(self._ids)):
            yield self.row(place)


def owner_of(custom_metadata: tuple[tuple[str, bytes], ...]) -> LedgerOwner:
    """Return the user of a ledger with this custom metadata.

    >>> owner_of((("pulsar/managed-ledger", b"public/default/persistent/a%2Fb"),))
    LedgerOwner(kind='topic', name='persistent://public/default/a/b', part='')
    """
    found = {name: value.decode(errors="replace") for name, value in custom_metadata}
    for key, kind in NAMES.items():
        if key in found:
            name = _topic(found[key]) if kind != "schema" else found[key]
            cursor = found.get("pulsar/cursor")
            return LedgerOwner(kind, name) if cursor is None else LedgerOwner("cursor", name, unquote(cursor))
    return LedgerOwner("other", "")


def _topic(text: str) -> str:
    parts = text.split("/")
    if "://" in text or len(parts) != 4:
        return text
    tenant, namespace, domain, local = parts
    return f"{domain}://{tenant}/{namespace}/{unquote(local)}"


@lru_cache(maxsize=4096)
def _stored_in(size: int, quorum: int, index: int, start: int, count: int) -> int:
    striping = striping_of(size, quorum)
    return sum(striping.stores(index, start + step) for step in range(count))


def stored(size: int, quorum: int, index: int, first: int, last: int) -> int:
    """Return the number of entries from `first` to `last` that the member at `index` stores.

    >>> stored(3, 2, 0, 0, 6), stored(3, 3, 1, 5, 9), stored(3, 2, 0, 4, 3)
    (5, 5, 0)
    """
    entries = last - first + 1
    if entries <= 0:
        return 0
    full, rest = divmod(entries, size)
    return full * quorum + _stored_in(size, quorum, index, first % size, rest)


@dataclass(slots=True)
class BookieShare:
    """Copies that one bookie should have, by the metadata."""

    ledgers: int = 0
    open_ledgers: int = 0
    """Ledgers that are not closed: their size is not in the metadata, and is not in `bytes`."""
    fragments: int = 0
    entries: int = 0
    """Entries of fragments whose end is known."""
    bytes: int = 0
    """Payload bytes of closed ledgers, by the average size of an entry of each."""


def shares(table: LedgerTable, first: int, count: int, into: dict[int, BookieShare]) -> None:
    """Count rows of the table, from a place on, into the shares of their bookies, by number."""
    for place in range(first, min(first + count, len(table))):
        row = table.row(place)
        layout = row.layout
        size, quorum, total = layout.ensemble_size, layout.write_quorum, row.last + 1
        seen: set[int] = set()
        for fragment, last in row.spans():
            for index, bookie in enumerate(fragment.members):
                own = 0 if last == OPEN_END else stored(size, quorum, index, fragment.first, last)
                if last != OPEN_END and not own:
                    continue
                share = into.get(bookie)
                if share is None:
                    share = into[bookie] = BookieShare()
                share.fragments += 1
                share.entries += own
                if total > 0:
                    share.bytes += row.length * own // total
                if bookie not in seen:
                    seen.add(bookie)
                    share.ledgers += 1
                    share.open_ledgers += row.is_open
