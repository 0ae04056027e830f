"""Acknowledgements of one durable subscription in transactions: their log, and what ends do to the cursor.

An acknowledgement is answered when its record is durable, and an end when its own is. What a commit acknowledges goes
to the cursor then; its records are kept until the cursor is durable, so a restart in between repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from broker.errors import BrokerError, ServiceNotReadyError
from broker.transactions.errors import InvalidStatusError
from broker.transactions.pending_state import Ack, PendingState, Result
from broker.transactions.record_log import RecordLog
from broker.transactions.records import CUMULATIVE, INDIVIDUAL, pending_ack_record, pending_ack_records, txn_of
from broker.transactions.txn_id import TxnId, pending_acks_log
from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.service.metrics import LATENCY_MS, Histogram
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer

log = get_logger(__name__)

CURSOR: Final = "__pending_ack_state"
"""Source: Pulsar's MLPendingAckStore.getTransactionPendingAckStoreCursorName."""
COMMIT_BOUNDS_US: Final = tuple(bound * 1e3 for bound in LATENCY_MS)
_DONE: Final = object()


class PendingTopic(Protocol):
    """Topic as used by the acknowledgements of its subscriptions."""

    name: TopicName
    nursery: trio.Nursery
    closing: bool

    def reload(self) -> None:
        """Close the topic; the next use of it opens it."""

    def check_open(self) -> None:
        """Raise ServiceNotReadyError if the topic is being closed."""


class Deliverer(Protocol):
    """Subscription as used by its acknowledgements in transactions."""

    def commit_acks(self, result: Result) -> None:
        """Acknowledge for good what a transaction acknowledged."""

    def deliver_again(self, positions: Sequence[Position]) -> None:
        """Deliver what an aborted transaction acknowledged."""


class AcksInTransactions:
    """Acknowledgements of one subscription in transactions, from the end of the replay on."""

    def __init__(self, topic: PendingTopic, name: str, cursor: Cursor, records: RecordLog, state: PendingState) -> None:
        self.state = state
        self.records = records
        self.name = name
        self.deliverer: Deliverer | None = None
        """The subscription, once it is made."""
        self.seen_open: dict[TxnId, float] = {}
        """See `TransactionBuffer`."""
        self.recovery_ms = (0, 0)
        """When the replay of the log began and ended, in ms since 1970."""
        self.commits = self.aborts = (0, 0)
        """Ends stored since it was opened, and those that could not be."""
        self.commit_us = Histogram(COMMIT_BOUNDS_US)
        """Times of commits, in microseconds."""
        self._topic = topic
        self._cursor = cursor
        self._ending: dict[TxnId, trio.Event] = {}
        """Set when the end of a transaction is stored, or failed."""

    @classmethod
    async def open(
        cls, factory: ManagedLedgerFactory, topic: PendingTopic, name: str, cursor: Cursor
    ) -> AcksInTransactions:
        """Open the log, made if it is missing, and replay it. Raises ManagedLedgerError, CursorError, RecordError."""
        records = await RecordLog.open(factory, pending_acks_log(topic.name, name), CURSOR)
        state = PendingState()
        over: list[Position] = []

        def seen(position: Position, entry: Buffer) -> None:
            found = pending_ack_records(entry)
            records.holds(position, len(found))
            for record in found:
                result = state.replay(position, record, txn_of(record))
                if result is not None:
                    acknowledge(cursor, result)
                    over.extend(result.records)

        try:
            await records.replay(seen)
        except BaseException:
            records.abandon()
            raise
        made = cls(topic, name, cursor, records, state)
        made._settle_when_durable(over)
        return made

    def follow(self, deliverer: Deliverer) -> None:
        """Serve this subscription from now on."""
        self.deliverer = deliverer

    # Acknowledging

    def hold(self, txn: TxnId, acks: Sequence[Ack], ack_type: int) -> None:
        """Hold messages in a transaction. Raises ConflictError, InvalidStatusError, ServiceNotReadyError."""
        self._topic.check_open()
        if txn in self._ending:
            raise InvalidStatusError(f"transaction {txn} is being ended: it acknowledges nothing more")
        self.state.check(txn, acks, ack_type, self._cursor)
        self.state.hold(txn, acks, ack_type)

    async def store(self, txn: TxnId, acks: Sequence[Ack], ack_type: int) -> None:
        """Store what was held in this step of the event loop. Raises ServiceNotReadyError."""
        record = pending_ack_record(txn, "ACK", ack_type, acks)

        def applied(position: Position | None) -> None:
            if position is not None:
                self.state.recorded(txn, position)

        await self._write(record, applied)

    async def _write(self, record: bytes, applied: partial[None] | _Applied) -> None:
        try:
            await self.records.write(record, applied)
        except ManagedLedgerError as error:
            self._topic.reload()  # the log may have the record: only reading it again tells
            raise ServiceNotReadyError(f"subscription {self.name!r}: {error}") from error

    # Ends

    async def end(self, txn: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Commit or abort a transaction here. Durable on return; once more if it was done before. Raises
        ServiceNotReadyError."""
        self._topic.check_open()
        if (ending := self._ending.get(txn)) is not None:
            await ending.wait()
            if txn in self.state.open:
                raise ServiceNotReadyError(f"the end of transaction {txn} is not stored in subscription {self.name!r}")
        elif txn in self.state.open:
            await self._store_end(txn, commit=commit)
        else:
            self.state.commit(txn)  # refuses late acknowledgements
        for late in self.state.raise_watermark(txn.most, low_watermark):
            if late not in self._ending:
                self.abort_soon(late)

    def abort_soon(self, txn: TxnId) -> None:
        """Abort in a task a transaction that is over, and of which its coordinator did not know this subscription."""
        log.info("acknowledgements aborted: their transaction is over", subscription=self.name, txn=str(txn))
        self._topic.nursery.start_soon(self._abort_over, txn, name=f"abort {txn} on {self.name}")

    async def _abort_over(self, txn: TxnId) -> None:
        try:
            await self.end(txn, commit=False, low_watermark=-1)
        except BrokerError as error:
            log.info("transaction not aborted", subscription=self.name, txn=str(txn), reason=str(error))

    async def _store_end(self, txn: TxnId, *, commit: bool) -> None:
        done = self._ending[txn] = trio.Event()
        is_cumulative = self.state.open[txn].cumulative is not None
        begun = trio.current_time()
        record = pending_ack_record(txn, "COMMIT" if commit else "ABORT", CUMULATIVE if is_cumulative else INDIVIDUAL)

        def over(stored: bool) -> None:
            del self._ending[txn]
            self._count(commit, stored)
            if stored and commit:
                self.commit_us.observe(round((trio.current_time() - begun) * 1e6))
            done.set()

        async def go_on(steps: Iterator[None]) -> None:
            await trio.lowlevel.checkpoint()
            for _ in steps:
                await trio.lowlevel.checkpoint()
                if self._topic.closing:
                    over(False)  # the next load does it again
                    return
            over(True)

        def applied(position: Position | None) -> None:
            if position is None:
                over(False)
                return
            # The first step at once, which is all of nearly every transaction.
            steps = self._ended(txn, position, commit=commit)
            if next(steps, _DONE) is _DONE:
                over(True)
            else:
                self._topic.nursery.start_soon(go_on, steps, name=f"end of {txn} on {self.name}")

        await self._write(record, applied)
        await done.wait()
        if txn in self.state.open:
            raise ServiceNotReadyError(f"the end of transaction {txn} is not applied to subscription {self.name!r}")

    def _count(self, commit: bool, stored: bool) -> None:
        succeeded, failed = self.commits if commit else self.aborts
        counts = succeeded + stored, failed + (not stored)
        if commit:
            self.commits = counts
        else:
            self.aborts = counts

    def _ended(self, txn: TxnId, position: Position, *, commit: bool) -> Iterator[None]:
        """Apply an end that is stored, an element per step of the event loop but the last."""
        self.seen_open.pop(txn, None)
        again: list[Position] = []
        records = [position]
        for result in self.state.committing(txn) if commit else self.state.aborting(txn):
            records += result.records
            if not commit:
                again += result.whole
            elif self.deliverer is None:
                acknowledge(self._cursor, result)
            else:
                self.deliverer.commit_acks(result)
            if txn in self.state.open:
                yield
        if commit:
            self._settle_when_durable(records)
        else:
            # At last, because they are delivered in order.
            if self.deliverer is not None:
                self.deliverer.deliver_again(again)
            self.records.settle(records)

    def _settle_when_durable(self, records: Sequence[Position]) -> None:
        """Drop records when the cursor has what they say."""
        if not records:
            return

        def persisted(error: Exception | None) -> None:
            if error is None:
                self.records.settle(records)

        self._cursor.persisted(persisted)

    # The end

    async def close(self) -> None:
        await self.records.close()

    def abandon(self) -> None:
        self.records.abandon()


class _Applied(Protocol):
    """Receiver of the place of a record; None: it may be lost."""

    def __call__(self, position: Position | None) -> None: ...


def acknowledge(cursor: Cursor, result: Result) -> None:
    """Acknowledge on a cursor what a transaction acknowledged; what is trimmed since, or acknowledged, is passed
    over."""
    try:
        if result.cumulative is not None:
            cursor.ack_cumulative(result.cumulative.position, result.cumulative.words)
    except CursorError as error:
        log.warning("a committed acknowledgement is not applied", reason=str(error))
    try:
        cursor.ack_individual(result.whole)
    except CursorError as error:
        log.warning("committed acknowledgements are not applied", reason=str(error))
    for position, words in result.parts:
        try:
            cursor.ack_batch(position, words)
        except CursorError as error:
            log.warning("a committed acknowledgement is not applied", position=str(position), reason=str(error))
