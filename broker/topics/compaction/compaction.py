"""Compaction of one topic: its compacted view, and the run that makes the next one.

    1. the cursor `__compaction` is made, or found: nothing behind it is trimmed
    2. the new ledger is made, with a node that names it and the old one
    3. it is written and closed
    4. the new view is shown to readers, and the cursor moved to its end, with the number of the ledger: durable
    5. the old ledger is deleted, then the node

A kill before 4 leaves the old view, one behind it the new view. The node leads to the ledger that is to be deleted, in
both cases. The cursor is none of the topic's subscriptions: nobody else may move it.

Source: Pulsar's PulsarCompactorSubscription (order of 4 and 5), PersistentTopic (triggerCompaction, compactionStatus).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from broker.context import Context
from broker.errors import BrokerError, CompactionRunningError, NotAllowedError, ServiceNotReadyError
from broker.topics.compaction import leftovers
from broker.topics.compaction.counts import CompactionCounts
from broker.topics.compaction.leftovers import COMPACTION_CURSOR, LEDGER_PROPERTY, NO_LEDGER, compacted_ledger
from broker.topics.compaction.view import CompactedView
from broker.topics.entry_screen import EntryScreen
from broker.topics.policies import Held
from broker.topics.system_names import is_keyed_system_topic, is_system_topic
from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.errors import LedgerError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.service.log import Logger
from quire.wire.pulsar.names import TopicName

NOT_RUN, RUNNING, SUCCESS, ERROR = "NOT_RUN", "RUNNING", "SUCCESS", "ERROR"
"""Status of a compaction, with the original's names."""
_FAILURES = (BrokerError, ManagedLedgerError, CursorError, LedgerError, MetadataError)


class CompactedTopic(Protocol):
    """Topic as used by its compaction."""

    context: Context
    name: TopicName
    ledger: ManagedLedger
    nursery: trio.Nursery
    closing: bool
    read_bound: Position | None

    policies: Held | None

    @property
    def screen(self) -> EntryScreen: ...

    @property
    def log(self) -> Logger: ...

    def check_open(self) -> None:
        """Raise ServiceNotReadyError if the topic is being closed."""

    def reload(self) -> None:
        """Close the topic in the background; the next use of it opens it."""


class Compaction:
    """Compaction of one topic, from its first one on."""

    __slots__ = ("_ended", "_lock", "_scope", "_topic", "counts", "error", "status", "view")

    def __init__(self, topic: CompactedTopic) -> None:
        self.view: CompactedView | None = None
        """None: the topic has no compacted ledger."""
        self.status = NOT_RUN
        self.error = ""
        """Reason of the status ERROR."""
        self.counts = CompactionCounts()
        self._topic = topic
        self._lock = trio.Lock()
        """Held by what makes or deletes ledgers."""
        self._scope = trio.CancelScope()
        self._ended: trio.Event | None = None
        """Set at the end of the run under way."""

    def recover(self) -> None:
        """Find the view of a topic that was loaded, and delete in the background what an interrupted run has left."""
        cursor = self._topic.ledger.cursors[COMPACTION_CURSOR]
        ledger_id = compacted_ledger(cursor)
        if ledger_id != NO_LEDGER:
            self.view = self._view_of(ledger_id, cursor.mark_delete)
            self._let_trim()
        self._start(self._clean, "clean")

    def _let_trim(self) -> None:
        """Let ledgers of a topic of the servers go that the cursor is behind: before its first compaction all are kept,
        for no cursor keeps them."""
        policies = self._topic.policies
        if policies is not None and not policies.is_compacted and is_keyed_system_topic(self._topic.name):
            policies.is_compacted = True
            self._topic.ledger.want_trim()

    def _view_of(self, ledger_id: int, horizon: Position) -> CompactedView:
        return CompactedView(self._topic.ledger.cursor_services.ledgers, ledger_id, horizon)

    def start(self) -> None:
        """Compact the topic in the background. Raises CompactionRunningError, ServiceNotReadyError, NotAllowedError (a
        log of the servers)."""
        self._topic.check_open()
        if is_system_topic(self._topic.name) and not is_keyed_system_topic(self._topic.name):
            raise NotAllowedError(f"{self._topic.name.full} is a topic of the servers")
        if self.status == RUNNING:
            raise CompactionRunningError(f"Compaction already in progress for {self._topic.name.full}")
        self.status, self.error = RUNNING, ""
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._start(self._run, "compact")

    def _start(self, job: Callable[[], Awaitable[None]], what: str) -> None:
        self._topic.nursery.start_soon(job, name=f"{what} {self._topic.name.full}")

    async def stop(self) -> None:
        """End the run under way, if there is one, and wait for its end."""
        if self._ended is not None:
            self._scope.cancel()
            await self._ended.wait()

    def lost(self, view: CompactedView) -> None:
        """Go on without a view whose ledger does not exist: its messages are gone, those of the log are not."""
        if self.view is view:
            self.view = None
            self._topic.log.error("compacted ledger is gone; reading the log alone", ledger=view.ledger_id)

    async def _run(self) -> None:
        topic, started = self._topic, trio.current_time()
        clock = topic.context.world.clock
        error = "the topic was closed"
        try:
            with self._scope:
                async with topic.context.compacting:
                    error = await self._compacted(started)
        finally:
            assert self._ended is not None, "made before the run"
            self.status, self.error = (ERROR, error) if error else (SUCCESS, "")
            if error:
                duration_ms = int(1000 * (trio.current_time() - started))
                self.counts.failure(now_ms=clock.wall_ms(), duration_ms=duration_ms)
            self._ended.set()

    async def _compacted(self, started: float) -> str:
        """Compact the topic; return why it failed, "" if it did not."""
        from broker.topics.compaction.selection import TooManyKeysError

        try:
            async with self._lock:
                await self._compact(started)
            return ""
        except (*_FAILURES, TooManyKeysError) as error:
            if not self._topic.closing:
                self._topic.log.warning("topic not compacted", reason=str(error))
            await self._clean()
            return str(error) or type(error).__name__
        except Exception as error:
            self._topic.log.error("topic not compacted", reason=repr(error), exc_info=True)
            await self._clean()
            return f"internal error ({type(error).__name__}); see the broker log"

    async def _compact(self, started: float) -> None:
        from broker.topics.compaction.compactor import Compactor  # most brokers never compact anything

        topic, ledger = self._topic, self._topic.ledger
        topic.check_open()
        cursor = await ledger.open_cursor(COMPACTION_CURSOR, initial="earliest")
        cursor.deactivate()  # the tail is not kept in the cache for it
        await leftovers.clean(ledger.cursor_services, topic.name, cursor)
        # What is behind an open transaction, or in one that was aborted, is for no reader.
        bound, held_back = topic.read_bound, topic.screen.transactions
        end, before = ledger.last_confirmed if bound is None else bound, self.view
        if not ledger.count_between(cursor.mark_delete, end) and (before is not None or not ledger.entry_count):
            return  # nothing new
        world = topic.context.world
        retain = topic.context.options.compaction_retain_null_key
        hides = None if held_back is None else held_back.hides
        job = Compactor(
            topic.name, ledger, before, end, world.offload, topic.check_open, retain_null_key=retain, hides=hides
        )
        made = await job.run()
        topic.check_open()
        # Before the cursor moves: what it frees may be trimmed at once.
        self.view = self._view_of(made.ledger_id, end)
        cursor.set_properties({LEDGER_PROPERTY: made.ledger_id})
        cursor.ack_cumulative(end)
        await cursor.wait_persisted()
        self._let_trim()
        duration_ms = int(1000 * (trio.current_time() - started))
        self.counts.success(
            now_ms=world.clock.wall_ms(),
            duration_ms=duration_ms,
            removed=made.removed,
            entries=made.entries,
            size=made.bytes,
        )
        topic.log.info("topic compacted", ledger=made.ledger_id, entries=made.entries, upto=str(end))
        await self._clean_up(cursor)

    async def _clean(self) -> None:
        cursor = self._topic.ledger.cursors.get(COMPACTION_CURSOR)
        if cursor is not None and not self._topic.closing:
            async with self._lock:
                await self._clean_up(cursor)

    async def _clean_up(self, cursor: Cursor) -> None:
        """Delete ledgers that are not needed. What fails is left to the next run, or load."""
        try:
            await leftovers.clean(self._topic.ledger.cursor_services, self._topic.name, cursor)
        except _FAILURES as error:
            if not self._topic.closing:
                self._topic.log.warning("compacted ledgers not deleted yet", reason=str(error))

    async def drop(self) -> None:
        """Forget the compacted view, and delete its ledger and the cursor. Raises ServiceNotReadyError (it may be
        incomplete: call it again, or compact the topic), NotAllowedError (a topic of the servers)."""
        topic = self._topic
        if is_system_topic(topic.name):
            raise NotAllowedError(f"{topic.name.full} is a topic of the servers: what is compacted is nowhere else")
        await self.stop()
        try:
            async with self._lock:
                cursor = topic.ledger.cursors.get(COMPACTION_CURSOR)
                if cursor is None:
                    return
                metadata = topic.ledger.cursor_services.metadata
                ledger_ids = {compacted_ledger(cursor), *await leftovers.named(metadata, topic.name)} - {NO_LEDGER}
                self.view, self.status = None, NOT_RUN
                await topic.ledger.delete_cursor(COMPACTION_CURSOR, also=sorted(ledger_ids))
                await leftovers.forget(metadata, topic.name)
        except _FAILURES as error:
            topic.reload()  # the cursor may have stopped, and is read again
            raise ServiceNotReadyError(f"compaction of {topic.name.full} is not dropped yet: {error}") from error


class Compactable(CompactedTopic, Protocol):
    """Topic that may have been compacted."""

    compaction: Compaction | None


def compaction_of(topic: Compactable) -> Compaction:
    """Return the compaction of a topic, made when first used."""
    if topic.compaction is None:
        topic.compaction = Compaction(topic)
    return topic.compaction
