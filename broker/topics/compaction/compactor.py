"""One compaction of one topic: reads it twice, and writes the compacted ledger.

    read one       decides which units stay: `selection`; again, if there are more keys than it holds
    read two       copies them, with their ids

Both read the compacted view there is, and then the log behind it: neither is trimmed meanwhile. The work on entries is
done by a worker, a run of entries at a time. Source: Pulsar's AbstractTwoPhaseCompactor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from broker.errors import ServiceNotReadyError
from broker.topics.compaction import leftovers, raw_message
from broker.topics.compaction.leftovers import NO_LEDGER
from broker.topics.compaction.selection import Selection
from broker.topics.compaction.units import rewritten, units_of
from broker.topics.compaction.view import CompactedView, Entries
from cursors.doors import Writer
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.errors import LedgerError
from quire.ledger.position import EARLIEST, Position
from quire.wire.pulsar.entry_features import without_broker_metadata
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer, Offload

READ_ENTRIES_MAX: Final = 500
READ_BYTES_MAX: Final = 256 << 10
"""Bounds of one read, and of the work on entries that is done at a time."""
PENDING_BYTES_MAX: Final = 2 << 20
"""Bytes on their way to the compacted ledger at which reading pauses."""
KEYS_MAX: Final = 500_000
"""Keys that one compaction holds at a time. A key of 16 characters takes about 150 bytes."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compacted ledger that was written and closed."""

    ledger_id: int
    entries: int
    bytes: int
    removed: int
    """Units that were looked at and left out."""


Hides = Callable[[Buffer], bool]


class TopicEntries:
    """The entries of a topic in order: those of the compacted view, then those of the log up to `end`."""

    def __init__(
        self, log: ManagedLedger, view: CompactedView | None, end: Position, hides: Hides | None = None
    ) -> None:
        """Take what is read. `hides`: says of an entry that it belongs to an aborted transaction, and is left out."""
        self._log = log
        self._view = view
        self._end = end
        self._hides = hides
        self._at = log.first_position() if view is None else EARLIEST

    async def next(self) -> Entries:
        """Return the next entries; none at the end. Raises ManagedLedgerError."""
        while (found := await self._read()) and self._hides is not None:
            if kept := [each for each in found if not self._hides(each[1])]:
                return kept
        return found

    async def _read(self) -> Entries:
        view = self._view
        if view is not None:
            found = await view.read(self._at, READ_ENTRIES_MAX, READ_BYTES_MAX)
            if found:
                ledger_id, entry_id = found[-1][0]
                self._at = Position(ledger_id, entry_id + 1)
                return found
            self._at = self._log.next_position(view.horizon)
            self._view = None
        if self._at > self._end:
            return []
        run = await self._log.read(self._at, READ_ENTRIES_MAX, READ_BYTES_MAX)
        count = len(run.payloads)
        self._at = self._log.next_position(Position(run.ledger_id, run.first_entry_id + count - 1))
        first = run.first_entry_id
        entries = [
            (Position(run.ledger_id, first + number), memoryview(without_broker_metadata(payload)))
            for number, payload in enumerate(run.payloads)
        ]
        return [each for each in entries if each[0] <= self._end]


class Compactor:
    """Compaction of a topic up to `end`."""

    def __init__(
        self,
        name: TopicName,
        log: ManagedLedger,
        view: CompactedView | None,
        end: Position,
        offload: Offload,
        check: Callable[[], None],
        *,
        retain_null_key: bool,
        keys_max: int = KEYS_MAX,
        hides: Hides | None = None,
    ) -> None:
        """Take the parts it uses. `check` is called between steps, and raises if the topic is being closed.

        `hides`: see `TopicEntries`."""
        self._hides = hides
        self._name = name
        self._log = log
        self._view = view
        self._end = end
        self._offload = offload
        self._check = check
        self._retain_null_key = retain_null_key
        self._selection = Selection(keys_max)
        self._last = EARLIEST
        """The last entry with a message that deletes nothing."""
        self._units = 0
        """Units that the first read found."""
        self._unit = 0
        """Number of the next unit in the second read."""

    async def run(self) -> Compacted:
        """Write the compacted ledger, and close it. Raises LedgerError, MetadataError, CursorError, ManagedLedgerError,
        TooManyKeysError, and what `check` raises."""
        await self._decide()
        old = NO_LEDGER if self._view is None else self._view.ledger_id
        last = self._end if self._last == EARLIEST else self._last
        writer = await leftovers.new_ledger(self._log.cursor_services, self._name, old, last)
        output = _Output(writer)
        source = TopicEntries(self._log, self._view, self._end, self._hides)
        while entries := await source.next():
            self._check()
            made = await self._offload.run(partial(self._copied, entries), name="compaction")
            await output.write(made)
        await output.write([], pending_max=0)
        await writer.close()
        selection = self._selection
        self._check_units(self._unit)
        removed = selection.units - selection.kept.count
        return Compacted(writer.ledger_id, writer.last_confirmed + 1, writer.length, removed)

    async def _decide(self) -> None:
        while self._selection.begin_read():
            source = TopicEntries(self._log, self._view, self._end, self._hides)
            while entries := await source.next():
                self._check()
                await self._offload.run(partial(self._select, entries), name="compaction")
            self._units = self._units or self._selection.units
            self._check_units(self._selection.units)

    def _check_units(self, found: int) -> None:
        """Check that a read found what the first one did: the decision is by number."""
        if found != self._units:
            raise ServiceNotReadyError(f"{self._name.full} was trimmed while it was compacted")

    def _select(self, entries: Entries) -> None:
        for position, entry in entries:
            units = units_of(entry, retain_null_key=self._retain_null_key)
            self._selection.add(units)
            if any(unit.size for unit in units):
                self._last = position

    def _copied(self, entries: Entries) -> list[bytes]:
        """Return the entries of the compacted ledger for these."""
        kept, found = self._selection.kept, []
        for position, entry in entries:
            count = len(units_of(entry, retain_null_key=self._retain_null_key))
            keeps = [kept[number] for number in range(self._unit, self._unit + count)]
            self._unit += count
            made = rewritten(entry, keeps)
            if made is not None:
                found.append(raw_message.encode(position, self._name.partition, made))
        return found


class _Output:
    """Writes to a ledger, with a bound on what is not confirmed."""

    def __init__(self, writer: Writer) -> None:
        writer.on_confirmed = self._confirmed
        writer.on_failed = self._failed
        self._writer = writer
        self._error: LedgerError | None = None
        self._changed = trio.Event()

    async def write(self, entries: Sequence[bytes], *, pending_max: int = PENDING_BYTES_MAX) -> None:
        """Append entries; return when at most `pending_max` bytes are not confirmed. Raises LedgerError."""
        writer = self._writer
        if entries and self._error is None:
            writer.append(entries)
        while self._error is None and writer.last_confirmed < writer.last_pushed:
            if pending_max and writer.pending_bytes <= pending_max:
                break
            self._changed = trio.Event()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def _confirmed(self, first: int, last: int) -> None:
        self._changed.set()

    def _failed(self, error: LedgerError) -> None:
        self._error = error
        self._changed.set()
