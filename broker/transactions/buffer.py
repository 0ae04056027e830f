"""Transactions of one loaded topic: messages on their way to the log, markers, and snapshots.

A marker is an entry of the log, as Pulsar writes it. So the log alone tells what became of each transaction; a snapshot
only says from where on it has to be read, and stays true however old it is. It is in a topic of the namespace, as
Pulsar's; a property of the log says that there is one. The log of a terminated topic takes no markers, so there the
property has the snapshot itself, fenced with the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import trio

from broker.context import Context
from broker.dispatch.subscription import Subscription
from broker.errors import BrokerError, ServiceNotReadyError
from broker.topics.entry_screen import EntryScreen
from broker.transactions.buffer_state import Aborted, BufferState, Snapshot
from broker.transactions.txn_id import IN_TOPIC, SNAPSHOT_PROPERTY, TxnId
from managed_ledger.entry_run import EntryRun
from managed_ledger.errors import ManagedLedgerClosedError, ManagedLedgerError
from managed_ledger.managed_ledger import AppendSink, ManagedLedger
from managed_ledger.writing.state import State
from quire.ledger.position import LATEST, Position
from quire.service.log import get_logger
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.metadata import encode_marker, peek
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer

log = get_logger(__name__)

TXN_COMMIT: Final = 21
TXN_ABORT: Final = 22
MARKER_PRODUCER: Final = "pulsar.txn.marker"
"""Source of the three: Pulsar's MarkerType, Markers.newTxnMarker."""
REPLAY_ENTRIES_MAX = 100
REPLAY_BYTES_MAX = 1 << 20


class BufferTopic(Protocol):
    """Topic as used by its transactions."""

    context: Context
    name: TopicName
    ledger: ManagedLedger
    screen: EntryScreen
    nursery: trio.Nursery
    read_bound: Position | None
    entries_in: int
    closing: bool

    def reload(self) -> None:
        """Close the topic; the next use of it opens it."""

    def check_open(self) -> None:
        """Raise ServiceNotReadyError if the topic is being closed."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...


class SnapshotStore(Protocol):
    """Interface to the topics that hold snapshots. Calls raise BrokerError."""

    async def find(self, topic: TopicName, has_ledger: Callable[[int], bool]) -> Snapshot | None:
        """Return what is stored about a topic; None: nothing is. `has_ledger`: whether its log still has a ledger."""

    async def store(self, topic: TopicName, snapshot: Snapshot | None) -> None:
        """Store the snapshot of a topic; durable on return. None: it has none any more."""


class TransactionBuffer:
    """Transactions of one topic, from the end of the replay on."""

    def __init__(self, topic: BufferTopic, state: BufferState, snapshots: SnapshotStore) -> None:
        self.state = state
        self._topic = topic
        self._snapshots = snapshots
        self._in_flight: Counter[TxnId] = Counter()
        """Messages on their way to the log."""
        self._ending: dict[TxnId, trio.Event] = {}
        """Set when the marker of a transaction is stored, or failed."""
        self._changes = 0
        """TransactionsOfTopic that ended since the last snapshot."""
        self.snapshot_ms = 0
        """When the last snapshot was stored, in ms since 1970; 0: not since the topic was loaded."""
        self._storing = trio.Lock()
        self.seen_open: dict[TxnId, float] = {}
        """When each open transaction was first seen by the task that asks for its state."""
        topic.screen.known_after = LATEST  # every entry has to be looked at from now on
        topic.screen.transactions = self
        self._move_bound()

    @classmethod
    async def create(cls, topic: BufferTopic, snapshots: SnapshotStore) -> TransactionBuffer:
        """Begin with the transactions of a topic that had none. Durable on return. Raises BrokerError."""
        made = cls(topic, BufferState(Snapshot(topic.ledger.last_confirmed, {}, {})), snapshots)
        await made.store_snapshot()
        return made

    # What is delivered

    def readable(self, run: EntryRun) -> EntryRun:
        """Return the part of a run that is before the bound."""
        bound = self._topic.read_bound
        if bound is None or (run.ledger_id, run.first_entry_id + len(run.payloads) - 1) <= bound:
            return run
        count = max(0, bound.entry_id - run.first_entry_id + 1) if run.ledger_id == bound.ledger_id else 0
        return EntryRun(run.ledger_id, run.first_entry_id, run.payloads[:count])

    def hides(self, entry: Buffer) -> bool:
        """Return whether an entry of a transaction belongs to one that was aborted."""
        txn = txn_of_entry(entry)
        return txn is not None and self.state.is_hidden(txn)

    def _move_bound(self) -> None:
        first = self.state.first_open()
        self._topic.read_bound = None if first is None else self._topic.ledger.previous_position(first)

    # Messages

    def refusal(self, entry: Buffer) -> str:
        """Return why a message sent in a transaction is not taken, "" if it is."""
        txn = txn_of_entry(entry)
        if txn is None:
            return "the metadata of the message does not name its transaction"
        if not self.state.takes(txn):
            return f"transaction {txn} has been ended: use a new one to send"
        return ""

    def sink(self, payloads: Sequence[Buffer], inner: AppendSink) -> AppendSink:
        """Return the sink of a run of messages, some of transactions, that are given to the log now."""
        txns = [txn_of_entry(payload) for payload in payloads]
        self._in_flight.update(txn for txn in txns if txn is not None)
        return _MessageSink(txns, inner, self)

    def stored(self, txns: Sequence[TxnId | None], ledger_id: int, first_entry_id: int) -> None:
        """Note messages that are in the log now. In the step that confirms them, before any subscription looks."""
        moved = False
        for index, txn in enumerate(txns):
            if txn is not None:
                moved = self.state.message(txn, Position(ledger_id, first_entry_id + index)) or moved
        if moved:
            self._move_bound()
        self._landed(txns)

    def lost(self, txns: Sequence[TxnId | None], error: Exception) -> None:
        """Note messages that may or may not be in the log: only reading it again tells."""
        self._landed(txns)
        if txns and not isinstance(error, ManagedLedgerClosedError):
            self._topic.reload()

    def _landed(self, txns: Sequence[TxnId | None]) -> None:
        for txn in txns:
            if txn is None:
                continue
            self._in_flight[txn] -= 1
            if not self._in_flight[txn]:
                del self._in_flight[txn]

    # Ends

    async def end(self, txn: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Commit or abort a transaction here. Durable on return; once more if it was done before.

        Raises ServiceNotReadyError: not known whether it is done."""
        self._topic.check_open()
        if (ending := self._ending.get(txn)) is not None:
            await ending.wait()
            if txn in self.state.open:
                raise ServiceNotReadyError(f"the end of transaction {txn} is not stored in {self._topic.name.full}")
        elif txn in self.state.open or txn in self._in_flight:
            if self._topic.ledger.state is State.TERMINATED:
                await self._end_terminated(txn, commit=commit)
            else:
                await self._write_marker(txn, commit=commit)
        else:
            self.state.ending(txn)
        for late in self.state.raise_watermark(txn.most, low_watermark):
            self.abort_soon(late)

    def abort_soon(self, txn: TxnId) -> None:
        """Abort in a task a transaction that is over, and of which its coordinator did not know this topic."""
        log.info("transaction aborted: it is over", topic=self._topic.name.full, txn=str(txn))
        self._topic.nursery.start_soon(self._abort_over, txn, name=f"abort {txn} on {self._topic.name.full}")

    async def _abort_over(self, txn: TxnId) -> None:
        try:
            await self.end(txn, commit=False, low_watermark=-1)
        except BrokerError as error:
            log.info("transaction not aborted", topic=self._topic.name.full, txn=str(txn), reason=str(error))

    async def _write_marker(self, txn: TxnId, *, commit: bool) -> None:
        done = self._ending[txn] = trio.Event()
        self.state.ending(txn)
        topic = self._topic
        marker = encode_marker(
            TXN_COMMIT if commit else TXN_ABORT, MARKER_PRODUCER, txn, topic.context.world.clock.wall_ms()
        )
        sink = _MarkerSink(self, txn, commit, done)
        topic.ledger.append([marker], sink)
        await done.wait()
        if not sink.stored:
            raise ServiceNotReadyError(f"the end of transaction {txn} is not stored in {topic.name.full}")

    def ended(self, txn: TxnId, position: Position, *, commit: bool) -> None:
        """Note a marker that is in the log now."""
        self._ending.pop(txn, None)
        self.state.marker(txn, position, commit=commit)
        self.seen_open.pop(txn, None)
        self._changes += 1
        self._move_bound()

    def not_ended(self, txn: TxnId, error: Exception) -> None:
        """Note a marker that may or may not be in the log."""
        self._ending.pop(txn, None)
        if not isinstance(error, ManagedLedgerClosedError):
            self._topic.reload()

    async def _end_terminated(self, txn: TxnId, *, commit: bool) -> None:
        """End a transaction of a log that takes no marker: its snapshot has to say it. A commit waits for those that
        are open before it, because the snapshot begins with the first open one."""
        state, ledger = self.state, self._topic.ledger
        if commit and next(iter(state.open), None) != txn:
            raise ServiceNotReadyError(f"{self._topic.name.full} is terminated, and another transaction is open there")
        state.marker(txn, ledger.last_confirmed, commit=commit)
        await self.store_snapshot()
        self._move_bound()
        for subscription in list(self._topic.subscriptions.values()):
            subscription.pump()

    # Snapshots

    @property
    def has_changed(self) -> bool:
        """Return whether a transaction ended since the last snapshot."""
        return self._changes > 0

    def is_due(self, transactions_max: int, interval_s: float) -> bool:
        """Return whether a snapshot is to be stored: so many transactions ended, or some, and so much time passed."""
        since_ms = self._topic.context.world.clock.wall_ms() - self.snapshot_ms
        return self._changes >= transactions_max or (self._changes > 0 and since_ms >= interval_s * 1000)

    async def store_snapshot(self) -> None:
        """Store the state. Raises BrokerError."""
        async with self._storing:
            ledger = self._topic.ledger
            self.state.trim(lambda ledger_id: ledger.last_entry_of(ledger_id) is not None)
            snapshot = self.state.snapshot(ledger.last_confirmed, ledger.previous_position)
            changes, self._changes = self._changes, 0
            try:
                if ledger.state is State.TERMINATED:
                    await self._store_property(snapshot.encode())
                    await self._snapshots.store(self._topic.name, snapshot)
                else:
                    await self._snapshots.store(self._topic.name, snapshot)
                    await self._store_property(IN_TOPIC)
            except BrokerError:
                self._changes += changes
                raise
            self.snapshot_ms = self._topic.context.world.clock.wall_ms()

    async def _store_property(self, value: str) -> None:
        """Store the property, unless it has the value. Raises ServiceNotReadyError."""
        ledger = self._topic.ledger
        if dict(ledger.properties).get(SNAPSHOT_PROPERTY) == value:
            return
        try:
            await ledger.update_properties(lambda properties: {**properties, SNAPSHOT_PROPERTY: value})
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"transactions of {self._topic.name.full}: {error}") from error


class _MessageSink:
    """Sink of messages of transactions, in front of that of their producer."""

    __slots__ = ("_buffer", "_done", "_inner", "_txns")

    def __init__(self, txns: list[TxnId | None], inner: AppendSink, buffer: TransactionBuffer) -> None:
        self._txns = txns
        self._inner = inner
        self._buffer = buffer
        self._done = 0

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        begin, self._done = self._done, self._done + count
        self._buffer.stored(self._txns[begin : self._done], ledger_id, first_entry_id)
        self._inner.confirmed(ledger_id, first_entry_id, count)

    def failed(self, error: Exception) -> None:
        self._inner.failed(error)
        self._buffer.lost(self._txns[self._done :], error)


class _MarkerSink:
    """Sink of one marker."""

    __slots__ = ("_buffer", "_commit", "_done", "_txn", "stored")

    def __init__(self, buffer: TransactionBuffer, txn: TxnId, commit: bool, done: trio.Event) -> None:
        self._buffer = buffer
        self._txn = txn
        self._commit = commit
        self._done = done
        self.stored = False

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.stored = True
        self._buffer.ended(self._txn, Position(ledger_id, first_entry_id), commit=self._commit)
        self._done.set()

    def failed(self, error: Exception) -> None:
        self._buffer.not_ended(self._txn, error)
        self._done.set()


def txn_of_entry(entry: Buffer) -> TxnId | None:
    """Return the transaction that the metadata of an entry names."""
    try:
        found = peek(entry).transaction
    except MalformedMetadataError:
        return None
    return None if found is None else TxnId(*found)


async def recover(ledger: ManagedLedger, snapshot: Snapshot) -> BufferState:
    """Return the state of the transactions of a log that nobody adds to meanwhile: the snapshot, and what is behind it.

    Raises ManagedLedgerError."""
    state = BufferState(snapshot)
    position = max(ledger.next_position(snapshot.position), ledger.first_position())
    end = ledger.last_confirmed
    entries = 0
    while position <= end:
        run = await ledger.read(position, REPLAY_ENTRIES_MAX, REPLAY_BYTES_MAX)
        if not run.payloads:
            break
        for index, payload in enumerate(run.payloads):
            learn(state, Position(run.ledger_id, run.first_entry_id + index), payload)
        entries += len(run.payloads)
        position = ledger.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
    log.debug("transactions recovered", topic=ledger.name, entries=entries, open=len(state.open))
    return state


def learn(state: BufferState, position: Position, entry: Buffer) -> None:
    """Learn from one entry of the log."""
    try:
        found = peek(entry)
    except MalformedMetadataError:
        return
    if found.transaction is None:
        return
    txn = TxnId(*found.transaction)
    if found.marker_type is None:
        state.message(txn, position)
    elif found.marker_type in (TXN_COMMIT, TXN_ABORT):
        state.marker(txn, position, commit=found.marker_type == TXN_COMMIT)


__all__ = ["Aborted", "TransactionBuffer", "learn", "recover", "txn_of_entry"]
