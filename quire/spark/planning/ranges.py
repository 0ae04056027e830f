"""Split planning: from logs and offsets to the range of a trigger and its tasks. Pure: facts in, decisions out.

Why this is hard: Spark repeats a range after a crash, and the repetition must read the same entries, so nothing may
depend on the time of planning. Ledgers are trimmed and rolled meanwhile, a place between two ledgers has two names, and
a missing ledger may have been read or lost. New partitions appear, and small limits must not starve any of them.

What holds, by the names of spark.md's rules: C1 no end above the last confirmed entry; C5 nothing new gives `start`
itself; C6 no place of a partition ever goes back; a partition that `start` does not have begins at its earliest entry.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from quire.spark.errors import OptionError
from quire.spark.limits import Backlog, Limits, share
from quire.spark.offsets import EARLIEST_MARK, LATEST_MARK, Boundary, Offsets, Place
from quire.spark.planning.logs import LedgerRange, LedgerSize, LostEntries, PartitionLog
from quire.spark.planning.tasks import TopicRange, split
from quire.spark.topics import partitioned_name

__all__ = [
    "LedgerRange",
    "LedgerSize",
    "LostEntries",
    "PartitionLog",
    "TopicRange",
    "canonical",
    "holes",
    "next_end",
    "ranges",
    "resolve",
    "split",
    "topic_range",
]


def canonical(log: PartitionLog, place: Place) -> Place:
    """Return the canonical place; see `PartitionLog.canonical`."""
    return log.canonical(place)


# End of a trigger


def next_end(
    logs: Mapping[str, PartitionLog],
    start: Offsets,
    *,
    messages_max: int | None = None,
    bytes_max: int | None = None,
    per_entry: Mapping[str, float] | None = None,
    target: Offsets | None = None,
) -> Offsets:
    """Return the end of the trigger that begins at `start`; `start` itself if nothing is new.

    `per_entry`    messages that an entry of a partition holds, about; 1 where not given
    `target`       where an available-now query ends: nothing behind it is taken, nothing of partitions not in it

    Partitions of `start` without a log (their topic is gone) stay as they are. New partitions enter with the first
    change, those that have no entry yet at their earliest place.
    """
    names = sorted(name for name in logs if target is None or name in target or name in start)
    begins = {name: start.get(name) or logs[name].earliest() for name in names}
    backlogs, parts = [], []
    for name in names:
        log = logs[name]
        stop = log.end() if target is None else target.get(name, begins[name])
        found = log.between(begins[name], stop)  # never above the confirmed entries, whatever the target is
        parts.append(found)
        backlogs.append(Backlog(log.pieces(found), (per_entry or {}).get(name, 1.0)))
    turn = zlib.crc32(start.text().encode())  # another one first each time, so that none starves under a small limit
    limits = Limits(messages_max=messages_max, bytes_max=bytes_max)
    taken = share(backlogs, limits, turn=turn)
    if not any(taken):
        return start
    return start.with_places(
        {name: _after(begins[name], found, n) for name, found, n in zip(names, parts, taken, strict=True)}
    )


def _after(start: Place, parts: Sequence[LedgerRange], entries: int) -> Place:
    """Return the place so many entries further."""
    place = start
    for part in parts:
        if entries <= 0:
            break
        place = Place(part.ledger_id, part.first + min(entries, part.entries))
        entries -= part.entries
    return place


# Boundaries given by a user


def resolve(
    option: str,
    boundary: Boundary,
    logs: Mapping[str, PartitionLog],
    at: Mapping[str, Place] | None = None,
) -> Offsets:
    """Return offsets of every partition in `logs`.

    `at`: for a timestamp, the first entry of each that is not older, from the broker; partitions not in it have none,
    so their end is used. Raises OptionError for `option` ("startingOffsets"): a partition without a place, a place
    without a partition, or a place outside its log."""
    if boundary.kind == "earliest":
        return Offsets({name: log.earliest() for name, log in logs.items()})
    if boundary.kind == "latest":
        return Offsets({name: log.end() for name, log in logs.items()})
    if boundary.kind in ("timestamp", "timestamps"):
        found = {name: min((at or {}).get(name, log.end()), log.end()) for name, log in logs.items()}
        late = [name for name, place in found.items() if place == logs[name].end()]
        if late and boundary.must_exist:
            strategy = "startingOffsetsByTimestampStrategy"
            raise OptionError(strategy, "error", f"these have no entry of that time or later: {_names(late)}")
        return Offsets({name: logs[name].canonical(place) for name, place in found.items()})
    given = given_by_partition(option, boundary, logs)
    return Offsets({name: _place(option, logs[name], place) for name, place in given.items()})


def given_by_partition(option: str, boundary: Boundary, logs: Mapping[str, PartitionLog]) -> dict[str, Place | int]:
    """Return what a user gave for each partition: a place, a mark, or a time.

    Raises OptionError for `option`: a partition without one, or one without a partition."""
    members: dict[str, list[str]] = {}
    for name in logs:
        topic = partitioned_name(name)
        members.setdefault(topic, []).append(name)
    found: dict[str, Place | int] = {}
    strange: list[str] = []
    for name, given in boundary.places:
        if name in logs:
            matches = [name]
        elif isinstance(given, int):
            matches = members.get(name, [])
        else:
            matches = []
        if not matches and name.endswith("-partition-0") and partitioned_name(name) in logs:
            matches = [partitioned_name(name)]  # Kafka's {"topic": {"0": ...}} for a topic without partitions
        if not matches:
            strange.append(name)
        found |= dict.fromkeys(matches, given)
    if strange:
        raise OptionError(option, None, f"it has topics that are not read: {_names(strange)}; read are {_names(logs)}")
    missing = [name for name in logs if name not in found]
    if missing:
        more = "" if boundary.kind == "timestamps" else "; -2 is the earliest entry, -1 the latest"
        raise OptionError(option, None, f"it has no place for {_names(missing)}{more}")
    return found


def _place(option: str, log: PartitionLog, given: Place | int) -> Place:
    if given == EARLIEST_MARK:
        return log.earliest()
    if given == LATEST_MARK:
        return log.end()
    assert isinstance(given, Place), "times are looked up before"
    return _checked(option, log, given)


def _checked(option: str, log: PartitionLog, given: Place) -> Place:
    """Return the canonical place, checked against the end of the log. Deleted entries are not checked here."""
    place, entries = log.canonical(given), log.entries_of(given.ledger_id)
    if (entries is not None and given.entry_id > entries) or place > log.end():
        ends = (
            f"the log ends at {log.end()}" if place > log.end() else f"ledger {given.ledger_id} has {entries} entries"
        )
        raise OptionError(option, None, f"{given} is outside {log.name}: {ends}")
    return place


def _names(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")


# Entries to read


def ranges(
    log: PartitionLog,
    start: Place,
    end: Place,
    *,
    mark_delete: tuple[int, int] | None = None,
    seen: PartitionLog | None = None,
) -> tuple[tuple[LedgerRange, ...], LostEntries | None]:
    """Return the entries of [start, end) by ledger, and the missing ones. `mark_delete`, `seen`: see
    `PartitionLog.missing_before`."""
    if start >= end:
        return (), None
    found = log.between(start, end)
    return found, _merged(
        [*_at_start(log, start, end, mark_delete, seen), *holes(log, start, end, seen), *_at_end(log, start, end)]
    )


def _at_start(
    log: PartitionLog, start: Place, end: Place, mark_delete: tuple[int, int] | None, seen: PartitionLog | None
) -> list[LostEntries]:
    if start.ledger_id == end.ledger_id:
        return []  # existing entries count, see _at_end
    lost = log.missing_before(start, mark_delete=mark_delete, seen=seen)
    if lost is None:
        return []
    known = None if seen is None else seen.count_between(start, min(lost.end, end)) or None
    return [LostEntries(partition=log.name, start=start, end=min(lost.end, end), entries=known, reason=lost.reason)]


def holes(log: PartitionLog, start: Place, end: Place, seen: PartitionLog | None) -> list[LostEntries]:
    """Return the missing ledgers strictly between those of `start` and `end` that had entries when the log was
    `seen`."""
    found = []
    for ledger in seen.ledgers if seen is not None else ():
        ledger_id, entries = ledger.ledger_id, ledger.entries
        if start.ledger_id < ledger_id < end.ledger_id and entries and log.entries_of(ledger_id) is None:
            found.append(
                LostEntries(
                    partition=log.name,
                    start=Place(ledger_id, 0),
                    end=Place(ledger_id, entries),
                    entries=entries,
                    reason=f"ledger {ledger_id} was deleted",
                )
            )
    return found


def _at_end(log: PartitionLog, start: Place, end: Place) -> list[LostEntries]:
    """Check the end, which was confirmed once: every entry of its ledger before it must exist."""
    ledger_id = end.ledger_id
    there = log.entries_of(ledger_id)
    if end.entry_id <= (there or 0):
        return []
    first = max(there or 0, start.entry_id if start.ledger_id == ledger_id else 0)
    reason = f"ledger {ledger_id} was deleted" if there is None else f"ledger {ledger_id} ends at entry {there - 1}"
    return [
        LostEntries(
            partition=log.name, start=Place(ledger_id, first), end=end, entries=end.entry_id - first, reason=reason
        )
    ]


def _merged(losses: Sequence[LostEntries]) -> LostEntries | None:
    if not losses:
        return None
    counts = [lost.entries for lost in losses]
    known = [count for count in counts if count is not None]
    return LostEntries(
        partition=losses[0].partition,
        start=min(lost.start for lost in losses),
        end=max(lost.end for lost in losses),
        entries=sum(known) if len(known) == len(counts) else None,
        reason=", ".join(dict.fromkeys(lost.reason for lost in losses)),
    )


def topic_range(
    log: PartitionLog,
    start: Place,
    end: Place,
    *,
    earlier_max: int = 0,
    mark_delete: tuple[int, int] | None = None,
    seen: PartitionLog | None = None,
) -> tuple[TopicRange | None, LostEntries | None]:
    """Return the task for [start, end), None if it has no entry, and the missing entries.

    `earlier_max`: entries to look back for chunks."""
    found, lost = ranges(log, start, end, mark_delete=mark_delete, seen=seen)
    if not found:
        return None, lost
    begins_there = found[0][:2] == start[:2]
    first = Place(found[0].ledger_id, found[0].first)
    return (
        TopicRange(
            partition=log.name,
            ranges=found,
            start_batch_index=start.batch_index if begins_there else 0,
            earlier=log.before(first, earlier_max),
        ),
        lost,
    )
