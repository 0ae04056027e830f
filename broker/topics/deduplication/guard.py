"""Deduplication of one topic: sends on their way to the log, what is durable of them, and snapshots.

Sequence ids are kept in memory. A snapshot is the map of durable ids, stored as the numbers of the cursor
`pulsar.dedup` with the position up to which it holds; what came behind it is read again from the log when the topic is
loaded (`replay`). A snapshot is taken after so many entries, at most four times a second, and when so much time has
passed since the last one, so the cursor keeps only what was written since.

A failed append leaves open what the log has of it, so the topic is loaded again: the log tells.

Source: Pulsar's MessageDeduplication. Different here: PRODUCER_SUCCESS waits until what the same producer sent before
is durable, so that its last sequence id is true, whatever follows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

import trio

from broker.config import BrokerOptions
from broker.errors import ServiceNotReadyError
from broker.topics.deduplication.sequences import Sequences
from broker.topics.policies import Held
from broker.topics.ports import StoringHome
from broker.topics.producer import Producer, PublishSink
from cursors.cursor import Cursor
from managed_ledger.errors import ManagedLedgerClosedError
from quire.ledger.position import Position
from quire.wire.pulsar.metadata import chunk_of
from quire.wire.pulsar.splitter import CHUNK, SendRun

DEDUPLICATION_CURSOR: Final = "pulsar.dedup"
"""Name of the cursor; no subscription can have it."""
PAUSE_S: Final = 0.25
"""Time between two snapshots for the number of entries. At 14,000 messages/s they took a tenth of the CPU without it; a
load of the topic reads again what was published in that time."""
SETTLE_S: Final = 15.0
"""Time that a producer waits for what it sent on a connection before to become durable."""


class GuardedTopic(StoringHome[Producer], Protocol):
    """Topic as used by its deduplication."""

    def append(self, producer: Producer, run: SendRun, size: int, sink: PublishSink | None = None) -> None:
        """Give a run to the log."""

    def reload(self) -> None:
        """Close the topic; the next use of it opens it."""


class Deduplication:
    """Deduplication of one topic that is loaded, from the end of the replay on."""

    __slots__ = (
        "_changed",
        "_cursor",
        "_next_at",
        "_options",
        "_since_snapshot",
        "_snapshot_at",
        "policies",
        "sequences",
        "stopped",
    )

    def __init__(self, options: BrokerOptions, policies: Held, cursor: Cursor, sequences: Sequences) -> None:
        self.policies = policies
        self.sequences = sequences
        self.stopped = False
        """Set when the cursor is deleted."""
        self._options = options
        self._cursor = cursor
        self._since_snapshot = 0
        """Entries stored since the last snapshot."""
        self._snapshot_at = trio.current_time()
        self._next_at = -inf
        """Time before which the number of entries asks for no snapshot."""
        self._changed: trio.Event | None = None
        """Set at the next entry that is durable or failed, for a producer that waits for it."""

    # Publishing

    def publish(self, topic: GuardedTopic, producer: Producer, run: SendRun, size: int) -> None:
        """Store what is new of a run; answer duplicates, in the order of the sends."""
        name, ids = producer.name, run.sequence_ids
        is_plain = run.highest_ids is None and not run.flags & CHUNK
        if is_plain and self.sequences.push_all(name, ids):
            topic.append(producer, run, size, DeduplicatedSink(producer, run, topic, size, self, True))
            return
        for part, is_new, completes in self._judged(name, run):
            if is_new:
                part_size = sum(map(len, part.payloads))
                sink = DeduplicatedSink(producer, part, topic, part_size, self, completes)
                topic.append(producer, part, part_size, sink)
            else:
                producer.answer_duplicates(part)

    def _judged(self, name: str, run: SendRun) -> list[tuple[SendRun, bool, bool]]:
        """Return the parts of a run, whether each is new, and whether its messages are complete."""
        ids, push = run.sequence_ids, self.sequences.push
        found: list[tuple[bool, bool]] = []
        for index, sequence_id in enumerate(ids):
            completes = not run.flags & CHUNK or is_last_chunk(run.payloads[index])
            found.append((push(name, sequence_id, highest_of(run, index), completes=completes), completes))
        if len(set(found)) == 1:
            return [(run, *found[0])]
        parts: list[tuple[SendRun, bool, bool]] = []
        start = 0
        for index in range(1, len(ids) + 1):
            if index == len(ids) or found[index] != found[start]:
                parts.append((run.part(start, index), *found[start]))
                start = index
        return parts

    def stored(
        self, name: str, run: SendRun, index: int, completes: bool, ledger_id: int, entry_id: int, count: int
    ) -> None:
        """Note that a run is durable up to `index`, which is this entry: `count` entries more than before."""
        if completes:
            self.sequences.stored(name, run.sequence_ids[index], highest_of(run, index))
        self._since_snapshot += count
        if self._since_snapshot >= self._options.deduplication_entries_interval:
            now = trio.current_time()
            if now >= self._next_at:
                self._next_at = now + PAUSE_S
                self.take_snapshot(Position(ledger_id, entry_id))
        if self._changed is not None:
            self._tell()

    def failed(self) -> None:
        """Note that an append failed: the topic is being closed."""
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # Producers

    @property
    def is_awaited(self) -> bool:
        """Return whether a producer waits for sends to become durable."""
        return self._changed is not None

    async def settle(self, name: str, check: Callable[[], None]) -> None:
        """Wait until what a producer of that name sent before is durable.

        `check` raises if the topic or the client is gone. Raises ServiceNotReadyError also if it takes too long."""
        with trio.move_on_after(SETTLE_S):
            while not self.sequences.is_settled(name):
                check()
                if self._changed is None:
                    self._changed = trio.Event()
                await self._changed.wait()
            return
        raise ServiceNotReadyError(f"what producer {name!r} sent before is not durable yet")

    # Snapshots

    def replayed(self, entries: int, end: Position) -> None:
        """Note how many entries behind the snapshot were read when the topic was loaded."""
        self._since_snapshot = entries
        if entries >= self._options.deduplication_entries_interval:
            self.take_snapshot(end)

    def tick(self, end: Position) -> None:
        """Forget producers that are gone for long, and take a snapshot if it is time. Called periodically with the last
        entry of the log."""
        now = trio.current_time()
        forgotten = self.sequences.purge(now - self._options.deduplication_inactivity_s)
        interval_s = self.policies.snapshot_interval_s()
        if forgotten or (self._since_snapshot and interval_s and now - self._snapshot_at >= interval_s):
            self.take_snapshot(end)

    def leave(self, end: Position) -> None:
        """Take a snapshot of what is durable, as the topic is closed: its next owner need not read entries again."""
        if self._since_snapshot:
            self.take_snapshot(end)

    def take_snapshot(self, end: Position) -> None:
        """Store the map with the position of the last entry it counts."""
        if self.stopped:
            return
        self._since_snapshot = 0
        self._snapshot_at = trio.current_time()
        # In one step, so that one write has both.
        self._cursor.set_properties(self.sequences.snapshot())
        if end > self._cursor.mark_delete and end.entry_id >= 0:
            self._cursor.ack_cumulative(end)


class DeduplicatedSink(PublishSink):
    """`PublishSink` of a topic with deduplication."""

    __slots__ = ("_completes", "_deduplication", "_guarded")

    def __init__(
        self,
        producer: Producer,
        run: SendRun,
        topic: GuardedTopic,
        size: int,
        deduplication: Deduplication,
        completes: bool,
    ) -> None:
        """`completes`: no entry of the run is a part of a chunked message but the last."""
        super().__init__(producer, run, topic, size)
        self._guarded = topic
        self._deduplication = deduplication
        self._completes = completes

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        index, entry_id = self._done + count - 1, first_entry_id + count - 1
        self._deduplication.stored(self._producer.name, self._run, index, self._completes, ledger_id, entry_id, count)
        super().confirmed(ledger_id, first_entry_id, count)

    def failed(self, error: Exception) -> None:
        super().failed(error)
        if not isinstance(error, ManagedLedgerClosedError):
            self._guarded.reload()
        self._deduplication.failed()


def highest_of(run: SendRun, index: int) -> int:
    """Return the highest sequence id that a send names; its only one if it names no other.

    The number of its messages says nothing about ids: some clients number messages, and others number batches."""
    return run.sequence_ids[index] if run.highest_ids is None else run.highest_ids[index]


def is_last_chunk(entry: bytes | bytearray | memoryview) -> bool:
    """Return whether the entry is the last part of a chunked message, or not a part of one."""
    part = chunk_of(entry)
    return part is None or part[1] >= part[2] - 1
