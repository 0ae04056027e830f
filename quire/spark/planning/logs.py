"""One partition's log as reported by its broker, and the meaning of places in it. Pure.

    ledgers     [2: 10 entries][3: 10 entries][4: 9 entries, open]        last confirmed 4:8
    places       ^2:0 earliest  ^2:10 = 3:0                  ^4:9 end

Between the last entry of a ledger and the first of the next there is one place with two names. The canonical one is
that behind the entry that was read last, 2:10: an acknowledgement of 2:9 is what frees the data before it. The other is
used where there is nothing before.

When the ledger of a place is no longer in the list, the place alone does not show whether something behind it was lost:
the ledger may have been read to its end, or not. So `missing_before` takes evidence, and without it takes the ledger's
going for a loss. A hold that stays at least one entry behind (`hold_at`) keeps the ledger of the last entry that was
read in the list, so that with a hold a ledger that is gone is a loss indeed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from quire.spark.errors import DataLossError, StatsError
from quire.spark.offsets import Place


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """A ledger of the list. `entries` counts confirmed ones, `size_bytes` their bytes, as far as known."""

    ledger_id: int
    entries: int
    size_bytes: int


class LedgerRange(NamedTuple):
    """Entries `first` to `last` (inclusive) of a ledger."""

    ledger_id: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEntries:
    """Entries of [start, end) that are no longer in the log; reading continues at `end`."""

    partition: str
    start: Place
    end: Place
    entries: int | None
    """Number of lost entries; None: unknown."""
    reason: str

    def __str__(self) -> str:
        count = "how many is not known" if self.entries is None else f"{self.entries} entries"
        to = "on" if self.end <= self.start else f"up to {self.end}"
        return (
            f"data loss in {self.partition}: the entries from {self.start} {to} cannot be read"
            f" ({count}): {self.reason}. With the option failOnDataLoss=false the query skips them"
        )

    def error(self) -> DataLossError:
        return DataLossError(str(self))

    @classmethod
    def topic(cls, partition: str, start: Place) -> LostEntries:
        """Return the loss of a whole topic."""
        return cls(partition=partition, start=start, end=start, entries=None, reason="the topic no longer exists")


@dataclass(frozen=True)
class PartitionLog:
    """The ledgers of a partition (or of a topic without partitions), in order, bounded by the last confirmed entry."""

    name: str
    ledgers: tuple[LedgerSize, ...]
    """Ledgers in order. Entries above `last_confirmed` do not count. The open one is the last; an open, empty one has 0
    entries."""
    last_confirmed: tuple[int, int]
    """(ledger, entry) of the last confirmed entry; entry -1: none in that ledger, nor before it unless the list has
    some. Its ledger may have been trimmed since."""

    @classmethod
    def from_internal_stats(cls, name: str, stats: Mapping[str, object], *, settled: bool = False) -> PartitionLog:
        """Parse the answer of `GET .../internalStats`.

        Raises StatsError: read while a ledger rolled, ask again, the last time with `settled`, which accepts a ledger
        shown empty in the middle of the list as empty.

        The list shows the open ledger as 0/0. Its numbers are in currentLedgerEntries and currentLedgerSize, which
        include unconfirmed entries, so lastConfirmedEntry is the bound.
        Source: pulsar.md 6.5; observed on the original."""
        try:
            listed = [
                LedgerSize(_number(item["ledgerId"]), _number(item["entries"]), _number(item["size"]))
                for item in _items(stats["ledgers"])
            ]
            ledger_text, _, entry_text = str(stats["lastConfirmedEntry"]).partition(":")
            confirmed = (int(ledger_text), int(entry_text))
            current_entries = _number(stats.get("currentLedgerEntries", 0))
            current_size = _number(stats.get("currentLedgerSize", 0))
        except (KeyError, TypeError, ValueError) as error:
            raise StatsError(f"{name}: invalid internalStats from the broker: {error!r}") from error
        listed.sort(key=lambda ledger: ledger.ledger_id)
        if confirmed[0] < 0 and not listed:
            raise StatsError(f"{name}: the log has no ledger yet")
        if confirmed[1] >= 0 and listed and listed[-1].ledger_id < confirmed[0]:
            raise StatsError(
                f"{name}: entry {confirmed[0]}:{confirmed[1]} is confirmed, its ledger not in the list yet"
            )
        bounded = []
        for ledger in listed:
            if ledger.ledger_id > confirmed[0]:
                ledger = LedgerSize(ledger.ledger_id, 0, 0)
            elif ledger.ledger_id == confirmed[0]:
                entries, size = (
                    (ledger.entries, ledger.size_bytes) if ledger.entries else (current_entries, current_size)
                )
                there = confirmed[1] + 1
                ledger = LedgerSize(ledger.ledger_id, there, size * there // entries if entries > there else size)
            elif not ledger.entries and not settled:
                raise StatsError(f"{name}: ledger {ledger.ledger_id} is shown empty, but is not the last")
            bounded.append(ledger)
        return cls(name, tuple(bounded), confirmed)

    @cached_property
    def _ids(self) -> list[int]:
        return [ledger.ledger_id for ledger in self.ledgers]

    def entries_of(self, ledger_id: int) -> int | None:
        """Return the confirmed entries of a ledger; None: it is not in the list."""
        at = bisect_left(self._ids, ledger_id)
        return self.ledgers[at].entries if at < len(self._ids) and self._ids[at] == ledger_id else None

    # Places

    def end(self) -> Place:
        """Return the canonical place behind the last confirmed entry, which may be in a ledger trimmed since."""
        ledger_id, entry_id = self.last_confirmed
        if entry_id >= 0:
            return Place(ledger_id, entry_id + 1)
        return self._behind(len(self.ledgers)) or Place(self._ids[-1] if self._ids else ledger_id, 0)

    def earliest(self) -> Place:
        """Return the place of the first existing entry; `end()` if there is none."""
        return next((Place(ledger.ledger_id, 0) for ledger in self.ledgers if ledger.entries), None) or self.end()

    def canonical(self, place: Place) -> Place:
        """Return the canonical name of a place: behind the entry before it. Places unknown to the log are unchanged."""
        if place.batch_index or place.entry_id or self.entries_of(place.ledger_id) is None:
            return place
        at = bisect_left(self._ids, place.ledger_id)
        if not self.between(place, self.end()):
            return self.end()
        return self._behind(at) or self.earliest()

    def _behind(self, at: int) -> Place | None:
        """Return the place behind the last entry of the ledgers before number `at`."""
        for ledger in reversed(self.ledgers[:at]):
            if ledger.entries:
                return Place(ledger.ledger_id, ledger.entries)
        return None

    def between(self, start: Place, end: Place) -> tuple[LedgerRange, ...]:
        """Return the existing entries of [start, end), by ledger.

        An entry in the middle of which `start` lies is included, one in the middle of which `end` lies is not."""
        if start >= end:
            return ()
        found = []
        for ledger in self.ledgers[bisect_left(self._ids, start.ledger_id) :]:
            ledger_id = ledger.ledger_id
            if ledger_id > end.ledger_id:
                break
            first = start.entry_id if ledger_id == start.ledger_id else 0
            stop = min(ledger.entries, end.entry_id) if ledger_id == end.ledger_id else ledger.entries
            if first < stop:
                found.append(LedgerRange(ledger_id, first, stop - 1))
        return tuple(found)

    def count_between(self, start: Place, end: Place) -> int:
        """Return the number of existing entries of [start, end)."""
        return sum(part.entries for part in self.between(start, end))

    def bytes_between(self, start: Place, end: Place) -> int:
        """Return their approximate bytes, by the average of each ledger."""
        return sum(size for _, size in self.pieces(self.between(start, end)))

    def pieces(self, ranges: Sequence[LedgerRange]) -> list[tuple[int, int]]:
        """Return (entries, approximate bytes) of each range."""
        found = []
        for part in ranges:
            ledger = self.ledgers[bisect_left(self._ids, part.ledger_id)]
            found.append((part.entries, ledger.size_bytes * part.entries // ledger.entries))
        return found

    def before(self, place: Place, entries: int) -> tuple[LedgerRange, ...]:
        """Return up to so many entries right before `place`, in order, which may be earlier pieces of chunked
        messages."""
        found: list[LedgerRange] = []
        for part in reversed(self.between(Place(0, 0), Place(place.ledger_id, place.entry_id))):
            if entries <= 0:
                break
            found.append(part._replace(first=max(part.first, part.last - entries + 1)))
            entries -= found[-1].entries
        return tuple(reversed(found))

    def back(self, place: Place, entries: int) -> Place:
        """Return the canonical place so many entries before `place`, at most the earliest."""
        parts = self.before(place, entries)
        return self.canonical(Place(parts[0].ledger_id, parts[0].first)) if parts else self.canonical(place)

    def hold_at(self, place: Place, behind: int) -> Place:
        """Return the next entry of a subscription that retains the data of a stream at `place`.

        It is `behind` entries behind the stream, at least one. So the ledger of the last entry read stays, and a
        missing one was not read."""
        return self.back(place._replace(batch_index=0), max(behind, 1))

    def mark_delete_for(self, place: Place) -> tuple[int, int]:
        """Return (ledger, entry) of the entry before `place`: acknowledging up to it makes `place` next. Entry -1:
        there is none."""
        ledger_id, entry_id, _ = self.canonical(place._replace(batch_index=0))
        return ledger_id, entry_id - 1

    # Missing entries

    def missing_before(
        self, place: Place, *, mark_delete: tuple[int, int] | None = None, seen: PartitionLog | None = None
    ) -> LostEntries | None:
        """Return the loss if entries at or behind `place` may be gone, so that reading from there would omit them; else
        None.

        mark_delete   (ledger, entry) of the subscription that holds the data, as reported now: brokers delete
                      only what it has passed
        seen          this log as it was a while ago
        """
        ledger_id, entry_id, _ = place
        behind_last = Place(self.last_confirmed[0], self.last_confirmed[1] + 1)
        at_entry = Place(ledger_id, entry_id)
        if at_entry == behind_last:
            return None  # nothing was ever confirmed behind it
        entries = self.entries_of(ledger_id)
        if entries is not None and entry_id <= entries:
            return None
        if entries is not None:
            reason = f"ledger {ledger_id} ends at entry {entries - 1}: this is not the log that the offset is of"
            return self._lost(place, self._resume(place), None, reason)
        if at_entry > behind_last:
            reason = f"the log ends at {self.end()}, before it: this is not the log that the offset is of"
            return self._lost(place, place, None, reason)
        resume = self._resume(place)
        if self.last_confirmed[0] in self._ids or self.last_confirmed[1] < 0:
            # Nothing shows yet that entries behind `place` are gone; evidence may show that they are not.
            if mark_delete is not None and self._is_held(at_entry, mark_delete):
                return None
            if seen is not None and self._is_continued(at_entry, seen):
                return None
        count = None if seen is None else seen.count_between(place, resume)
        return self._lost(place, resume, count or None, f"ledger {ledger_id} was deleted")

    def _resume(self, place: Place) -> Place:
        """Return where reading continues if the ledger of `place` is missing, or shorter."""
        parts = self.between(place, self.end())
        return Place(parts[0].ledger_id, parts[0].first) if parts else max(self.end(), place)

    def _is_held(self, place: Place, mark_delete: tuple[int, int]) -> bool:
        ledger_id, entry_id = mark_delete
        if (ledger_id, entry_id + 1) <= (place.ledger_id, place.entry_id):
            return True
        # An empty closed ledger is removed, and a broker moves cursors in it to the start of the log at that time. A
        # subscription moved by another client would hardly be at exactly that place.
        return place.entry_id == 0 and entry_id == -1 and bool(self._ids) and ledger_id <= self._ids[0]

    def _is_continued(self, place: Place, seen: PartitionLog) -> bool:
        """Return whether every ledger that had, or could get, entries at or behind `place` then still exists."""
        held = [
            ledger.ledger_id
            for ledger in seen.ledgers
            if ledger.ledger_id > place.ledger_id
            or (ledger.ledger_id == place.ledger_id and ledger.entries > place.entry_id)
        ]
        return bool(held) and set(held) <= set(self._ids)

    def _lost(self, start: Place, end: Place, entries: int | None, reason: str) -> LostEntries:
        return LostEntries(partition=self.name, start=start, end=end, entries=entries, reason=reason)


def _items(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, list):
        raise TypeError(f"ledgers is {value!r}")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
