"""Internal state of a topic for operators and readers that plan work: ledgers, end, cursors.

`take` is one synchronous step, so the list of ledgers, the last confirmed entry and the positions of cursors are
consistent. With more than CURSORS_IN_STEP cursors, what else they have is of a moment before; of a cursor with many
ranges of acknowledged entries, those behind the first RANGES_IN_STEP are read afterwards. Names
of the JSON are the original's; values that Quire does not keep are 0, -1 or an empty text.
Source: the original's PersistentTopicInternalStats, ManagedLedgerInternalStats and ManagedLedgerImpl, which shows the
open ledger in the list without entries and size, and with them as currentLedgerEntries and currentLedgerSize.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

import trio

from broker.dispatch.subscription import Subscription
from broker.topics.topic import Topic
from cursors.cursor import Cursor
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.metadata import ledger_codec
from quire.metadata.errors import MetadataError
from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState
from quire.metadata.ledgers import ledger_path
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger

NONE = -1
CURSORS_IN_STEP = 100
"""Cursors that are looked at before other tasks run."""
RANGES_IN_STEP = 500
"""Ranges of acknowledged entries read in one step of the event loop."""

log = get_logger(__name__)

STATES = {
    State.OPEN: "LedgerOpened",
    State.SWITCHING: "ClosingLedger",
    State.IDLE: "ClosedLedger",
    State.FENCED: "Fenced",
    State.TERMINATED: "Terminated",
    State.CLOSING: "Closed",
    State.CLOSED: "Closed",
}
"""The original's names of the states of a log."""


async def read_metadata(metadata: MetadataStore, root: str, ledger_id: int) -> LedgerMetadata | None:
    """Return the metadata of a ledger; None if there is none now, or it cannot be read."""
    try:
        node = await metadata.get(ledger_path(root, ledger_id))
        return None if node is None else ledger_codec.decode(node.value)
    except MetadataError as error:
        log.warning("ledger metadata not read", ledger=ledger_id, reason=str(error))
        return None


class LedgerStats(NamedTuple):
    """One ledger of the log."""

    ledger_id: int
    entries: int
    """0 while it is open."""
    size: int
    """Bytes of payload; 0 while it is open."""
    offloaded: bool = False
    metadata: str = ""
    """The ledger's metadata as text, if it was asked for and is there."""
    properties: tuple[tuple[str, str], ...] = ()


class CursorStats(NamedTuple):
    """One durable cursor."""

    mark_delete: Position
    read_position: Position
    waiting_read: bool
    """Sign that it has delivered everything and waits for entries."""
    reading: bool
    """Sign of a read at the bookies that is under way."""
    consumed: int
    """Entries added minus backlog, so it may be below 0: both count from when the topic was loaded."""
    cursor_ledger_id: int
    """-1: none, the position is in the cursor's node."""
    cursor_ledger_last_entry: int
    """-1: none, or unknown."""
    deleted: str
    """Entries acknowledged above the mark-delete position, as ranges; see `last_range`."""
    ranges_count: int
    """Number of these ranges."""
    last_range: Position | None
    """Last entry of the last range in `deleted` if there may be more behind it."""
    state: str
    active: bool
    """Sign that it reads the tail, which is kept in the cache for it."""
    entries_since_first_unacked: int
    """Entries from the first one that is not acknowledged up to the read position."""
    properties: tuple[tuple[str, int], ...] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "markDeletePosition": str(self.mark_delete),
            "readPosition": str(self.read_position),
            "waitingReadOp": self.waiting_read,
            "pendingReadOps": int(self.reading),
            "messagesConsumedCounter": self.consumed,
            "cursorLedger": self.cursor_ledger_id,
            "cursorLedgerLastEntry": self.cursor_ledger_last_entry,
            "individuallyDeletedMessages": f"[{self.deleted}]",
            "lastLedgerSwitchTimestamp": "",
            "state": self.state,
            "active": self.active,
            "numberOfEntriesSinceFirstNotAckedMessage": self.entries_since_first_unacked,
            "totalNonContiguousDeletedMessagesRange": self.ranges_count,
            "subscriptionHavePendingRead": self.waiting_read or self.reading,
            "subscriptionHavePendingReplayRead": False,
            "properties": dict(self.properties),
        }


class InternalStats(NamedTuple):
    """Internal state of one topic; see the module."""

    entries_added: int
    """Entries added since the topic was loaded."""
    entry_count: int
    """Confirmed entries in the log, including those of the open ledger."""
    total_size: int
    """Payload bytes of those entries."""
    current_ledger_id: int
    """The open ledger, or its predecessor while the next is being made; -1: none."""
    current_ledger_entries: int
    """Confirmed entries of the current ledger."""
    current_ledger_size: int
    """Payload bytes of those entries."""
    next_ledger_id: int
    """Ledger made ahead, for when the current one is full; -1: none. The original makes no such ledger. Without this
    field the ledger would look like one that belongs to no topic."""
    last_ledger_created_ms: int
    """Creation time of the current ledger, in ms since 1970; -1: unknown."""
    waiting_cursors: int
    pending_adds: int
    """Entries that were published and are not confirmed yet."""
    last_confirmed: Position
    """(ledger, -1) of the first ledger if nothing was ever published."""
    state: str
    ledgers: tuple[LedgerStats, ...]
    cursors: tuple[tuple[str, CursorStats], ...]
    properties: tuple[tuple[str, str], ...] = ()
    schema_ledgers: tuple[tuple[int, int, int], ...] = ()
    """Id, entries and payload bytes of the ledgers of the topic's schemas."""
    compacted_ledger: tuple[int, int, int] = (NONE, NONE, NONE)
    """The same of the compacted ledger."""

    def as_json(self, cursor: Callable[[CursorStats], object] = CursorStats.as_json) -> dict[str, object]:
        """Return a dict with the original's names, ready to be encoded. `cursor`: returns the part about a cursor."""
        return {
            **self.log_as_json(cursor),
            "schemaLedgers": [
                {"ledgerId": ledger_id, "entries": entries, "size": size, "offloaded": False, "underReplicated": False}
                for ledger_id, entries, size in self.schema_ledgers
            ],
            "compactedLedger": {
                "ledgerId": self.compacted_ledger[0],
                "entries": self.compacted_ledger[1],
                "size": self.compacted_ledger[2],
                "offloaded": False,
                "underReplicated": False,
            },
        }

    def log_as_json(self, cursor: Callable[[CursorStats], object] = CursorStats.as_json) -> dict[str, object]:
        """Return the part about the log alone. Source: the original's ManagedLedgerInternalStats."""
        return {
            "entriesAddedCounter": self.entries_added,
            "numberOfEntries": self.entry_count,
            "totalSize": self.total_size,
            "currentLedgerEntries": self.current_ledger_entries,
            "currentLedgerSize": self.current_ledger_size,
            "nextLedger": {"ledgerId": self.next_ledger_id},
            "lastLedgerCreatedTimestamp": _time(self.last_ledger_created_ms),
            "lastLedgerCreationFailureTimestamp": "",
            "waitingCursorsCount": self.waiting_cursors,
            "pendingAddEntriesCount": self.pending_adds,
            "lastConfirmedEntry": str(self.last_confirmed),
            "state": self.state,
            "ledgers": [
                {
                    "ledgerId": ledger.ledger_id,
                    "entries": ledger.entries,
                    "size": ledger.size,
                    "offloaded": ledger.offloaded,
                    "metadata": ledger.metadata,
                    "underReplicated": False,
                    "properties": dict(ledger.properties),
                }
                for ledger in self.ledgers
            ],
            "cursors": {name: cursor(each) for name, each in self.cursors},
            "properties": dict(self.properties),
        }


NOTHING: Mapping[str, CursorStats] = MappingProxyType({})

Read = Callable[[int], Awaitable[LedgerMetadata | None]]
"""Return the metadata of a ledger; None: there is none."""


async def gather(topic: Topic, read: Read, schema_ledgers: Iterable[int], *, show_metadata: bool) -> InternalStats:
    """Return the state with what the metadata of ledgers say."""

    async def shape(ledger_id: int) -> tuple[int, int, int] | None:
        found = await read(ledger_id)
        return None if found is None else (ledger_id, found.last_entry_id + 1, found.length)

    known = await _metadata_of(topic.ledger, read, show_metadata=show_metadata)
    schemas = [each for ledger_id in schema_ledgers if (each := await shape(ledger_id)) is not None]
    view = None if topic.compaction is None else topic.compaction.view
    compacted = None if view is None else await shape(view.ledger_id)
    topic.check_open()
    earlier = await _many_cursors(topic)
    topic.check_open()
    taken = take(topic, known, show_metadata=show_metadata, earlier=earlier)
    cursors = await _with_all_ranges(topic.ledger, taken)
    return taken._replace(
        schema_ledgers=tuple(schemas), compacted_ledger=compacted or (NONE, NONE, NONE), cursors=cursors
    )


async def stats_of_log(ledger: ManagedLedger, read: Read, *, show_metadata: bool) -> InternalStats:
    """Return the state of a log that is no topic's."""
    known = await _metadata_of(ledger, read, show_metadata=show_metadata)
    taken = take_log(ledger, {}, known, show_metadata=show_metadata)
    return taken._replace(cursors=await _with_all_ranges(ledger, taken))


async def _with_all_ranges(ledger: ManagedLedger, taken: InternalStats) -> tuple[tuple[str, CursorStats], ...]:
    """Return the cursors with their further ranges, which are read in short steps and so are of later moments."""
    found: list[tuple[str, CursorStats]] = []
    for name, stats in taken.cursors:
        cursor, last, parts, count = ledger.cursors.get(name), stats.last_range, [stats.deleted], stats.ranges_count
        while last is not None and cursor is not None:
            await trio.lowlevel.checkpoint()
            more = cursor.ack_ranges(last, RANGES_IN_STEP)
            if more:
                parts.append(_ranges_text(more))
            count += len(more)
            last = _last_of(more)
        found.append((name, stats._replace(deleted=",".join(parts), ranges_count=count, last_range=None)))
    return tuple(found)


async def _metadata_of(ledger: ManagedLedger, read: Read, *, show_metadata: bool) -> dict[int, LedgerMetadata]:
    ids = {max(ledger.index.current_id, NONE)}
    if show_metadata:
        ids |= {info.ledger_id for info in ledger.ledgers}
    known: dict[int, LedgerMetadata] = {}
    for ledger_id in ids - {NONE}:
        if (found := await read(ledger_id)) is not None:
            known[ledger_id] = found
    return known


async def _many_cursors(topic: Topic) -> dict[str, CursorStats]:
    """Return the state of the cursors, taken in short steps, if there are too many for one step; else nothing."""
    found: dict[str, CursorStats] = {}
    cursors = list(topic.ledger.cursors.items())
    if len(cursors) > CURSORS_IN_STEP:
        for count, (name, cursor) in enumerate(cursors, 1):
            found[name] = _cursor(topic.ledger, cursor, topic.subscriptions.get(name))
            if not count % CURSORS_IN_STEP:
                await trio.lowlevel.checkpoint()
    return found


def take(
    topic: Topic,
    metadata: Mapping[int, LedgerMetadata],
    *,
    show_metadata: bool,
    earlier: Mapping[str, CursorStats] = NOTHING,
) -> InternalStats:
    """Return the state of one moment; nothing is awaited.

    `metadata` is the known metadata of ledgers, by id; it may lack some. `earlier`: cursors that were looked at a
    moment before; only their positions are taken now."""
    return take_log(topic.ledger, topic.subscriptions, metadata, show_metadata=show_metadata, earlier=earlier)


def take_log(
    ledger: ManagedLedger,
    subscriptions: Mapping[str, Subscription],
    metadata: Mapping[int, LedgerMetadata],
    *,
    show_metadata: bool,
    earlier: Mapping[str, CursorStats] = NOTHING,
) -> InternalStats:
    """As `take`, of a log with the subscriptions that read it."""
    appends, current = ledger.appends, max(ledger.index.current_id, NONE)
    size = _current_size(ledger)
    cursors = tuple(
        (
            name,
            _moved(earlier[name], cursor) if name in earlier else _cursor(ledger, cursor, subscriptions.get(name)),
        )
        for name, cursor in ledger.cursors.items()
    )
    return InternalStats(
        entries_added=ledger.entries_added,
        entry_count=ledger.entry_count,
        total_size=sum(info.size for info in ledger.ledgers if info.ledger_id != current) + size,
        current_ledger_id=current,
        current_ledger_entries=(ledger.last_entry_of(current) or 0) + 1 if current != NONE else 0,
        current_ledger_size=size,
        next_ledger_id=appends.next_ledger_id,
        last_ledger_created_ms=metadata[current].ctime_ms if current in metadata else NONE,
        waiting_cursors=sum(cursor.waiting_read for _, cursor in cursors),
        pending_adds=pending_adds(ledger),
        last_confirmed=ledger.last_confirmed,
        state=STATES[ledger.state],
        ledgers=tuple(
            LedgerStats(
                ledger_id=info.ledger_id,
                # The creation of its successor may have failed, with this ledger already closed in the list.
                entries=0 if info.ledger_id == current else info.entries,
                size=0 if info.ledger_id == current else info.size,
                metadata=_text(metadata[info.ledger_id]) if show_metadata and info.ledger_id in metadata else "",
                offloaded=info.is_offloaded,
                properties=info.properties,
            )
            for info in ledger.ledgers
        ),
        cursors=cursors,
        properties=ledger.properties,
    )


def _current_size(ledger: ManagedLedger) -> int:
    """Return the confirmed payload bytes of the current ledger."""
    writer = ledger.appends.writer
    if writer is None or writer.ledger_id != ledger.index.current_id:
        return 0
    first, last = writer.last_confirmed + 1, writer.last_pushed
    return writer.length - (sum(map(len, writer.sealed(first, last))) if first <= last else 0)


def _moved(earlier: CursorStats, cursor: Cursor) -> CursorStats:
    """Return the state of a cursor with its current positions."""
    mark_delete, read_position = cursor.mark_delete, cursor.read_position
    if mark_delete == earlier.mark_delete and read_position == earlier.read_position:
        return earlier
    return earlier._replace(mark_delete=mark_delete, read_position=read_position)


def _cursor(ledger: ManagedLedger, cursor: Cursor, subscription: Subscription | None) -> CursorStats:
    store = cursor.store
    ledger_id = NONE if store is None else store.ledger_id
    before = ledger.previous_position(cursor.read_position)
    ranges = cursor.ack_ranges(count_max=RANGES_IN_STEP)
    return CursorStats(
        mark_delete=cursor.mark_delete,
        read_position=cursor.read_position,
        waiting_read=subscription is not None and subscription.hungry,
        reading=subscription is not None and subscription.reading,
        consumed=ledger.entries_added - cursor.backlog(),
        cursor_ledger_id=ledger_id,
        cursor_ledger_last_entry=NONE,
        deleted=_ranges_text(ranges),
        ranges_count=len(ranges),
        last_range=_last_of(ranges),
        state="NoLedger" if ledger_id == NONE else "Open",
        active=cursor.active,
        entries_since_first_unacked=ledger.count_between(cursor.mark_delete, before),
        properties=tuple(cursor.properties.items()),
    )


def _ranges_text(ranges: Iterable[tuple[int, int, int]]) -> str:
    """Format ranges as the original does, without the first entry of each.

    >>> _ranges_text([(3, 1, 4), (5, 0, 0)])
    '(3:0..3:4],(5:-1..5:0]'
    """
    return ",".join([f"({ledger}:{first - 1}..{ledger}:{last}]" for ledger, first, last in ranges])


def _last_of(ranges: Sequence[tuple[int, int, int]]) -> Position | None:
    """Return the last entry of as many ranges as are read in a step; None for fewer, which are the last ones."""
    return Position(ranges[-1][0], ranges[-1][2]) if len(ranges) == RANGES_IN_STEP else None


def _text(metadata: LedgerMetadata) -> str:
    """Format ledger metadata in one line, without the password."""
    closed = ""
    if metadata.state is LedgerState.CLOSED:
        closed = f"length={metadata.length}, lastEntryId={metadata.last_entry_id}, "
    ensembles = ", ".join(
        f"{fragment.first_entry_id}=[{', '.join(fragment.bookies)}]" for fragment in metadata.fragments
    )
    return (
        f"LedgerMetadata{{formatVersion={metadata.format_version}, ensembleSize={metadata.ensemble_size},"
        f" writeQuorumSize={metadata.write_quorum}, ackQuorumSize={metadata.ack_quorum}, state={metadata.state.name},"
        f" {closed}digestType={metadata.digest_type.name}, ensembles={{{ensembles}}}}}"
    )


def _time(ms: int) -> str:
    """Format a time in ISO 8601, as the original does; empty if unknown.

    >>> _time(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    if ms < 0:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def pending_adds(ledger: ManagedLedger) -> int:
    """Return the number of entries that are on their way to the bookies."""
    pending = ledger.appends.pending
    return sum(run.count for run in (*pending.sent, *pending.queued))
