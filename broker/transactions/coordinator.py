"""One coordinator: its log, its clock, and the tasks that tell decisions to participants.

A decision is told again and again until every participant has confirmed it, also after a restart. A failed write leaves
open what the log has, so the coordinator is closed then, and opened again from its log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from broker.background import see_through
from broker.context import Context
from broker.errors import BrokerError, ServiceNotReadyError
from broker.transactions.coordinator_state import (
    ABORTED,
    ABORTING,
    COMMITTED,
    COMMITTING,
    OPEN,
    CoordinatorState,
    Transaction,
)
from broker.transactions.errors import CoordinatorNotFoundError
from broker.transactions.record_log import RecordLog
from broker.transactions.records import coordinator_record, coordinator_records
from broker.transactions.txn_id import TxnId, coordinator_log
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.service.metrics import Histogram
from quire.wire.pulsar.TransactionFormats_pb2 import TransactionMetadataEntry
from quire.world.backoff import Backoff
from quire.world.doors import Buffer
from quire.world.tasks import for_each

log = get_logger(__name__)

CURSOR: Final = "transaction.subscription"
MAX_ID_PROPERTY: Final = "max_local_txn_id"
"""Property of the log: no number above it was given to a transaction. Source of both: Pulsar's MLTransactionLogImpl,
MLTransactionSequenceIdGenerator."""
IDS_RESERVED = 1000
"""Numbers that one write of that property covers."""
TOLD_AT_ONCE_MAX = 16
"""Participants of a transaction that are told its end at the same time."""
EXECUTION_BOUNDS_MS: Final = (10, 20, 50, 100, 500, 1000, 5000, 15_000, 30_000, 60_000, 300_000, 1_500_000, 3_000_000)
"""Source: Pulsar's TransactionMetadataStoreStats."""
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0


class Participants(Protocol):
    """Interface to participants: both calls return when the participant knows, durably. Raise BrokerError."""

    async def end_on_partition(self, topic: str, txn: TxnId, *, commit: bool, low_watermark: int) -> None: ...

    async def end_on_subscription(
        self, topic: str, subscription: str, txn: TxnId, *, commit: bool, low_watermark: int
    ) -> None: ...


class _Tell(Protocol):
    """Tells one participant the end of a transaction."""

    def __call__(self, *, low_watermark: int) -> Awaitable[None]: ...


class Coordinator:
    """A coordinator that this broker has, from the end of the replay on."""

    def __init__(
        self,
        context: Context,
        records: RecordLog,
        state: CoordinatorState,
        participants: Participants,
        reserved: int,
        transactions_max: int,
    ) -> None:
        """`reserved`: see MAX_ID_PROPERTY. `transactions_max`: those open at a time; 0: no limit."""
        self.state = state
        self.records = records
        self.closed = False
        self.execution_ms = Histogram(EXECUTION_BOUNDS_MS)
        """Times from the begin of transactions to their end everywhere, in ms."""
        self.recovery_ms = (0, 0)
        """When the replay of the log began and ended, in ms since 1970."""
        self._context = context
        self._participants = participants
        self._reserved = reserved
        self._transactions_max = transactions_max
        self._reserving = trio.Lock()
        self._ending: dict[int, trio.Event] = {}
        """Set when a transaction that was decided is over, by its number."""
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._scopes: set[trio.CancelScope] = set()
        """Scopes of the tasks that tell ends."""

    @classmethod
    async def open(
        cls,
        context: Context,
        factory: ManagedLedgerFactory,
        coordinator_id: int,
        participants: Participants,
        transactions_max: int,
    ) -> Coordinator:
        """Open its log, which takes it from its former broker, and replay it. Raises ManagedLedgerError, CursorError,
        RecordError."""
        begun_ms = context.world.clock.wall_ms()
        records = await RecordLog.open(factory, coordinator_log(coordinator_id), CURSOR)
        state = CoordinatorState(coordinator_id)
        over: list[Position] = []

        def seen(position: Position, entry: Buffer) -> None:
            found = coordinator_records(entry)
            records.holds(position, len(found))
            for record in found:
                over.extend(state.replay(position, record))

        try:
            await records.replay(seen)
            await _learn_last_id(records, state)
        except BaseException:
            records.abandon()
            raise
        records.settle(over)
        reserved = state.last_id = max(state.last_id, int(dict(records.ledger.properties).get(MAX_ID_PROPERTY, -1)))
        made = cls(context, records, state, participants, reserved, transactions_max)
        made.recovery_ms = (begun_ms, context.world.clock.wall_ms())
        context.nursery.start_soon(made._run, name=f"transaction coordinator {coordinator_id}")
        return made

    async def _run(self) -> None:
        """Finish what was decided, and abort what is late, until it is closed."""
        with self._scope:
            for transaction in self.state.half_ended():
                if transaction.id.least not in self._ending:  # else a client was faster
                    self._start_end(transaction)
            while True:
                self._changed = trio.Event()
                deadline = self.state.next_deadline_ms()
                now = self._context.world.clock.wall_ms()
                with trio.move_on_after(max(0.0, (deadline - now) / 1000) if deadline is not None else float("inf")):
                    await self._changed.wait()
                for transaction in self.state.late(self._context.world.clock.wall_ms()):
                    self.state.timed_out += 1
                    log.info("transaction timed out", txn=str(transaction.id))
                    self._context.nursery.start_soon(self._abort_late, transaction.id, name=f"abort {transaction.id}")

    async def _abort_late(self, txn: TxnId) -> None:
        try:
            await self.end(txn, commit=False)
        except BrokerError as error:
            log.debug("late transaction not aborted", txn=str(txn), reason=str(error))

    # Requests

    async def new(self, timeout_ms: int, owner: str = "") -> TxnId:
        """Open a transaction of a role. Durable on return. Raises CoordinatorNotFoundError, ServiceNotReadyError (the
        limit is reached)."""
        self._check()
        if 0 < self._transactions_max <= len(self.state.transactions):
            raise ServiceNotReadyError(f"coordinator {self.state.coordinator_id} has {self._transactions_max} open")
        while self.state.last_id >= self._reserved:
            await self._reserve()
            self._check()
        state, now_ms = self.state, self._context.world.clock.wall_ms()
        transaction = state.open(now_ms, timeout_ms, owner)
        record = coordinator_record(transaction.id, TransactionMetadataEntry.NEW, now_ms, state.last_id)
        record.start_time, record.timeout_ms = now_ms, timeout_ms
        if owner:
            record.owner = owner

        def applied(position: Position | None) -> None:
            if position is None:
                state.not_opened(transaction)
            else:
                state.opened(transaction, position)
                self._changed.set()

        await self._write(record, applied)
        return transaction.id

    async def add(
        self, txn: TxnId, partitions: Sequence[str] = (), subscriptions: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Name participants of a transaction. Durable on return; without any, only check that it is open.

        Raises CoordinatorNotFoundError, TransactionNotFoundError, InvalidStatusError."""
        self._check()
        transaction = self.state.add(txn, partitions, subscriptions)
        for op, wanted in (
            (TransactionMetadataEntry.ADD_PARTITION, bool(partitions)),
            (TransactionMetadataEntry.ADD_SUBSCRIPTION, bool(subscriptions)),
        ):
            if wanted:
                record = self._record(transaction, op)
                if op == TransactionMetadataEntry.ADD_PARTITION:
                    record.partitions.extend(partitions)
                else:
                    for topic, subscription in subscriptions:
                        record.subscriptions.add(topic=topic, subscription=subscription)
                await self._write(record, partial(_place, transaction))

    async def end(self, txn: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction; return when every participant has confirmed it.

        A caller that leaves meanwhile changes nothing. Raises CoordinatorNotFoundError, TransactionNotFoundError,
        InvalidStatusError."""
        self._check()
        transaction = self.state.decide(txn, commit=commit)
        if transaction is None:
            return
        if transaction.status == OPEN:
            # In this step, so that nothing is added, and no other decision made, from here on.
            self.state.decided(transaction, commit=commit)
            # Before the decision is durable: a caller that asks once more waits too, and tells no participant.
            over = self._ending[txn.least] = trio.Event()
            await see_through(
                self._context.nursery, partial(self._store_decision, transaction, over), name=f"decision about {txn}"
            )
        elif (found := self._ending.get(txn.least)) is not None:
            over = found
        else:
            over = self._start_end(transaction)
        await over.wait()
        if txn.least in self.state.transactions:
            raise CoordinatorNotFoundError(f"coordinator {txn.most} was closed while transaction {txn} was ended")

    async def _store_decision(self, transaction: Transaction, over: trio.Event) -> None:
        record = self._record(transaction, TransactionMetadataEntry.UPDATE)
        record.expected_status = OPEN
        record.new_status = COMMITTING if transaction.commits else ABORTING
        await self._write(record, partial(_place, transaction))
        self._carry_out(transaction, over)

    # The end of a transaction

    def _start_end(self, transaction: Transaction) -> trio.Event:
        """Carry out a decision that is durable; return what is set at its end."""
        over = self._ending[transaction.id.least] = trio.Event()
        self._carry_out(transaction, over)
        return over

    def _carry_out(self, transaction: Transaction, over: trio.Event) -> None:
        """Tell the participants in a task, which sets `over` at its end."""
        if self.closed:
            over.set()
        else:
            name = f"end of transaction {transaction.id}"
            self._context.nursery.start_soon(self._end, transaction, over, name=name)

    async def _end(self, transaction: Transaction, over: trio.Event) -> None:
        txn, commit, tell = transaction.id, transaction.commits, self._participants
        jobs: list[_Tell] = [
            partial(tell.end_on_partition, topic, txn, commit=commit) for topic in transaction.partitions
        ]
        for topic, name in transaction.subscriptions:
            jobs.append(partial(tell.end_on_subscription, topic, name, txn, commit=commit))
        scope = trio.CancelScope()
        self._scopes.add(scope)
        try:
            with scope:
                await for_each(jobs, partial(self._tell, txn), at_once=TOLD_AT_ONCE_MAX, name=f"end of {txn}")
                record = self._record(transaction, TransactionMetadataEntry.UPDATE)
                record.expected_status = COMMITTING if commit else ABORTING
                record.new_status = COMMITTED if commit else ABORTED
                await self._write(record, partial(self._over, transaction))
        except BrokerError as error:
            log.info("end of a transaction is not stored", txn=str(txn), reason=str(error))
        finally:
            self._scopes.discard(scope)
            self._ending.pop(txn.least, None)
            over.set()

    async def _tell(self, txn: TxnId, job: _Tell) -> None:
        """Tell one participant until it has confirmed."""
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._context.world.rng)
        while True:
            try:
                await job(low_watermark=self.state.low_watermark)
                return
            except BrokerError as error:
                log.info("participant not told yet", txn=str(txn), reason=str(error))
            await trio.sleep(backoff.next())

    def _over(self, transaction: Transaction, position: Position | None) -> None:
        if position is not None:
            self.state.ended(transaction)
            self.execution_ms.observe(self._context.world.clock.wall_ms() - transaction.opened_ms)
            self.records.settle([*transaction.positions, position])

    # The log

    def _record(self, transaction: Transaction, op: int) -> TransactionMetadataEntry:
        now_ms = self._context.world.clock.wall_ms()
        return coordinator_record(transaction.id, op, now_ms, self.state.last_id)

    async def _write(self, record: TransactionMetadataEntry, applied: Callable[[Position | None], None]) -> None:
        """Store a record. Raises CoordinatorNotFoundError if it may not be stored: this coordinator ends then."""
        try:
            await self.records.write(record.SerializeToString(), applied)
        except ManagedLedgerError as error:
            self.abandon()
            raise CoordinatorNotFoundError(f"coordinator {self.state.coordinator_id}: {error}") from error

    async def _reserve(self) -> None:
        """Make sure that the next numbers are covered by the property of the log."""
        async with self._reserving:
            if self.state.last_id < self._reserved:
                return
            wanted = self.state.last_id + IDS_RESERVED

            def change(properties: dict[str, str]) -> dict[str, str]:
                return {**properties, MAX_ID_PROPERTY: str(wanted)}

            try:
                await self.records.ledger.update_properties(change)
            except ManagedLedgerError as error:
                self.abandon()
                raise CoordinatorNotFoundError(f"coordinator {self.state.coordinator_id}: {error}") from error
            self._reserved = wanted

    # The end

    def _check(self) -> None:
        if self.closed or not self.records.is_usable:
            raise CoordinatorNotFoundError(f"coordinator {self.state.coordinator_id} is being closed")

    def abandon(self) -> None:
        """Stop at once: what is not durable is unknown. The next open reads the log again."""
        if not self.closed:
            self._stop()
            self.records.abandon()

    async def close(self) -> None:
        """Stop, and close the log. Raises ManagedLedgerError, LedgerError, MetadataError."""
        self._stop()
        await self.records.close()

    def _stop(self) -> None:
        self.closed = True
        self._scope.cancel()
        for scope in self._scopes:
            scope.cancel()
        self.state.forget_all()
        for over in list(self._ending.values()):
            over.set()


def _place(transaction: Transaction, position: Position | None) -> None:
    """Note where a record of the transaction is."""
    if position is not None:
        transaction.positions.append(position)


async def _learn_last_id(records: RecordLog, state: CoordinatorState) -> None:
    """Learn the highest number from the last entry of the log, which may not matter any more."""
    last = records.ledger.last_confirmed
    if last.entry_id < 0 or records.ledger.last_entry_of(last.ledger_id) is None:
        return
    run = await records.ledger.read(last, 1, 1)
    for payload in run.payloads:
        for record in coordinator_records(payload):
            state.last_id = max(state.last_id, record.txnid_least_bits, record.max_local_txn_id)
