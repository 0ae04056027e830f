"""Transactions of one loaded topic: its buffer, and the acknowledgements of its subscriptions.

Each is made at its first use, or when the topic is loaded, if it has a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.errors import MetadataRefusedError, NotAllowedError, ServiceNotReadyError
from broker.transactions.buffer import BufferTopic, SnapshotStore, TransactionBuffer, recover
from broker.transactions.buffer_state import Snapshot
from broker.transactions.pending_acks import AcksInTransactions, acknowledge
from broker.transactions.pending_state import Ack, Result
from broker.transactions.record_log import delete_log
from broker.transactions.records import INDIVIDUAL, RecordError
from broker.transactions.txn_id import TxnId
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError, ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import AppendSink
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.world.doors import Buffer

log = get_logger(__name__)


class TransactionsOfTopic:
    """Transactions of one topic."""

    def __init__(self, topic: BufferTopic, factory: ManagedLedgerFactory, snapshots: SnapshotStore) -> None:
        self.buffer: TransactionBuffer | None = None
        self.acks: dict[str, AcksInTransactions] = {}
        """By subscription."""
        self.recovery_ms = (0, 0)
        """When the state of the buffer began and ended to be read, in ms since 1970; 0: it had none."""
        self._topic = topic
        self._factory = factory
        self._snapshots = snapshots
        self._making = trio.Lock()

    async def recover(self, subscriptions: Iterable[str], snapshot: Snapshot | None) -> None:
        """Open what the topic has: its buffer, which begins with `snapshot` (None: it has none), and the
        acknowledgements of these subscriptions. Raises ManagedLedgerError, CursorError."""
        topic = self._topic
        try:
            if snapshot is not None:
                begun_ms = self._now_ms()
                self.buffer = TransactionBuffer(topic, await recover(topic.ledger, snapshot), self._snapshots)
                self.recovery_ms = (begun_ms, self._now_ms())
            for name in subscriptions:
                await self._open_acks(topic.subscriptions[name])
        except RecordError as error:
            self.abandon()
            raise ManagedLedgerUnavailableError(f"transactions of {topic.name.full}: {error}") from error
        except BaseException:
            self.abandon()
            raise

    def _now_ms(self) -> int:
        return self._topic.context.world.clock.wall_ms()

    async def enable(self) -> None:
        """Let producers send in transactions. Durable on return. Raises BrokerError."""
        async with self._making:
            self._topic.check_open()
            if self.buffer is None:
                self.buffer = await TransactionBuffer.create(self._topic, self._snapshots)

    # Messages

    @property
    def counts(self) -> tuple[int, int, int]:
        if self.buffer is None:
            return 0, 0, 0
        state = self.buffer.state
        return len(state.open), state.committed, state.aborted_count

    @property
    def takes_messages(self) -> bool:
        return self.buffer is not None

    def refusal(self, entry: Buffer) -> str:
        if self.buffer is None:
            return "the topic takes no messages of transactions"
        return self.buffer.refusal(entry)

    def sink(self, payloads: Sequence[Buffer], inner: AppendSink) -> AppendSink:
        assert self.buffer is not None, "`refusal` lets nothing pass without a buffer"
        return self.buffer.sink(payloads, inner)

    # Acknowledgements

    async def acks_of(self, subscription: Subscription) -> AcksInTransactions:
        """Return the acknowledgements of a subscription, made at the first use. Raises NotAllowedError,
        ServiceNotReadyError."""
        if (known := self.acks.get(subscription.name)) is not None:
            return known
        if not subscription.durable:
            raise NotAllowedError("only durable subscriptions take acknowledgements in transactions")
        async with self._making:
            self._topic.check_open()
            if (known := self.acks.get(subscription.name)) is None:
                try:
                    known = await self._open_acks(subscription)
                except (ManagedLedgerError, CursorError, RecordError) as error:
                    raise ServiceNotReadyError(f"acknowledgements of {subscription.name!r}: {error}") from error
            return known

    async def _open_acks(self, subscription: Subscription) -> AcksInTransactions:
        begun_ms = self._now_ms()
        made = await AcksInTransactions.open(self._factory, self._topic, subscription.name, subscription.cursor)
        made.recovery_ms = (begun_ms, self._now_ms())
        made.records.ledger.on_fenced = self._topic.reload
        self.acks[subscription.name] = made
        self.follow(self._topic.subscriptions.get(subscription.name, subscription))
        return made

    def first_open(self) -> tuple[int, int] | None:
        return None if self.buffer is None else next(iter(self.buffer.state.open), None)

    def follow(self, subscription: Subscription) -> None:
        if (acks := self.acks.get(subscription.name)) is not None:
            subscription.held_in_transactions = acks.state
            acks.follow(_Deliverer(subscription))

    async def acknowledge(
        self, consumer: Consumer[Subscription], txn: TxnId, acks: Sequence[Ack], ack_type: int
    ) -> None:
        """Acknowledge messages in a transaction. Durable on return. Raises ConflictError, InvalidStatusError,
        NotAllowedError, ServiceNotReadyError."""
        subscription = consumer.subscription
        pending = await self.acks_of(subscription)
        for ack in acks:
            last = self._topic.ledger.last_entry_of(ack.position.ledger_id)
            known = last is not None and 0 <= ack.position.entry_id <= last
            if not known and not subscription.cursor.is_acked(ack.position):
                raise MetadataRefusedError(f"there is no message {ack.position}")
        pending.hold(txn, acks, ack_type)
        if ack_type == INDIVIDUAL:
            subscription.hold_in_transaction(consumer, [ack.position for ack in acks if not ack.words])
        await pending.store(txn, acks, ack_type)
        if not subscription.stopped:
            subscription.pump()  # what its consumers hold no longer may have kept a key

    async def delete(self, subscription: str) -> None:
        if (acks := self.acks.pop(subscription, None)) is not None:
            try:
                await delete_log(self._factory, acks.records.name)
            except ManagedLedgerError as error:
                raise ServiceNotReadyError(f"acknowledgements of {subscription!r}: {error}") from error

    # Ends

    async def end_on_topic(self, txn: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Raises ServiceNotReadyError."""
        if self.buffer is not None:
            await self.buffer.end(txn, commit=commit, low_watermark=low_watermark)

    async def end_on_subscription(self, name: str, txn: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Raises ServiceNotReadyError."""
        async with self._making:  # acknowledgements may be about to be opened
            acks = self.acks.get(name)
        if acks is not None:
            await acks.end(txn, commit=commit, low_watermark=low_watermark)

    # Life

    async def close(self) -> None:
        for acks in list(self.acks.values()):
            try:
                await acks.close()
            except Exception as error:
                log.warning("log of acknowledgements not closed", subscription=acks.name, reason=repr(error))

    def abandon(self) -> None:
        for acks in self.acks.values():
            acks.abandon()


class _Deliverer:
    """A subscription as its acknowledgements in transactions see it."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def commit_acks(self, result: Result) -> None:
        acknowledge(self._subscription.cursor, result)
        self._subscription.release_committed([position for position, _ in result.parts])
        self._subscription.pump()

    def deliver_again(self, positions: Sequence[Position]) -> None:
        if not self._subscription.stopped:
            self._subscription.deliver_again(positions)
