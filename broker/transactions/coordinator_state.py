"""State of the transactions of a coordinator (pure core of `coordinator`).

Why this is hard: a decision must be durable before any participant hears of it, each participant must hear of it
however often brokers die, and no transaction may be forgotten before all have confirmed.

    OPEN -> COMMITTING -> COMMITTED (forgotten)
    OPEN -> ABORTING   -> ABORTED   (forgotten)

What holds after every call:
- DecidedOnce: a transaction that left OPEN never changes its direction.
- MembersAreKnown: a partition or subscription that was named while it was OPEN is told the decision.
- WatermarkIsOver: every transaction up to `low_watermark` is over, and everyone that was named has confirmed.

Source: Pulsar's MLTransactionMetadataStore, TransactionMetadataStoreService.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush

from broker.transactions.errors import InvalidStatusError, TransactionNotFoundError
from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position
from quire.wire.pulsar import TransactionFormats_pb2 as formats
from quire.wire.pulsar.TransactionFormats_pb2 import TransactionMetadataEntry

ENDED_MAX = 10_000
"""Transactions that are over, of which the outcome is remembered: a client may ask again after a broken connection."""
OPEN = formats.OPEN
COMMITTING = formats.COMMITTING
COMMITTED = formats.COMMITTED
ABORTING = formats.ABORTING
ABORTED = formats.ABORTED
status_name = formats.TxnStatus.Name


class Transaction:
    """A transaction that is not over."""

    __slots__ = (
        "id",
        "is_durable",
        "opened_ms",
        "owner",
        "partitions",
        "positions",
        "status",
        "subscriptions",
        "timeout_ms",
    )

    def __init__(self, txn: TxnId, opened_ms: int, timeout_ms: int, owner: str = "") -> None:
        self.id = txn
        self.owner = owner
        """Role that opened it; empty: clients had no roles."""
        self.status: int = OPEN
        self.opened_ms = opened_ms
        self.timeout_ms = timeout_ms
        self.is_durable = True
        """False until its first record is durable."""
        self.partitions: dict[str, None] = {}
        self.subscriptions: dict[tuple[str, str], None] = {}
        """As (topic, subscription)."""
        self.positions: list[Position] = []
        """Its records in the log."""

    @property
    def commits(self) -> bool:
        """Return the decision, once it is made."""
        return self.status in (COMMITTING, COMMITTED)


class CoordinatorState:
    """Transactions of one coordinator that are not over, in the order of their numbers."""

    def __init__(self, coordinator_id: int) -> None:
        self.coordinator_id = coordinator_id
        self.transactions: dict[int, Transaction] = {}
        self.last_id = -1
        """The highest number that was given to a transaction."""
        self.created = self.committed = self.aborted = self.timed_out = 0
        self._ended: OrderedDict[int, bool] = OrderedDict()
        """Outcome of transactions that are over: True for a commit."""
        self._owners: dict[int, str] = {}
        """Owners of those that have one."""
        self._deadlines: list[tuple[int, int]] = []

    # Life of a transaction

    def open(self, opened_ms: int, timeout_ms: int, owner: str = "") -> Transaction:
        """Return a new transaction. Its record is not durable yet."""
        self.last_id += 1
        found = self.transactions[self.last_id] = Transaction(
            TxnId(self.coordinator_id, self.last_id), opened_ms, timeout_ms, owner
        )
        found.is_durable = False
        return found

    def opened(self, transaction: Transaction, position: Position) -> None:
        """Note that the record of a new transaction is durable: its time begins."""
        transaction.is_durable = True
        transaction.positions.append(position)
        self.created += 1
        self._await_end(transaction)

    def not_opened(self, transaction: Transaction) -> None:
        """Forget a transaction whose record is not durable."""
        self.transactions.pop(transaction.id.least, None)

    def find(self, txn: TxnId) -> Transaction:
        """Return a transaction that is not over. Raises TransactionNotFoundError."""
        found = self.transactions.get(txn.least) if txn.most == self.coordinator_id else None
        if found is None:
            raise TransactionNotFoundError(f"there is no transaction {txn}, or it is over")
        return found

    def owner_of(self, txn: TxnId) -> str:
        """Return the owner of a transaction, also of one that was over a moment ago; empty if it has none.

        Raises TransactionNotFoundError."""
        if txn.least in self._ended:
            return self._owners.get(txn.least, "")
        return self.find(txn).owner

    def add(self, txn: TxnId, partitions: Iterable[str], subscriptions: Iterable[tuple[str, str]]) -> Transaction:
        """Name participants. Raises TransactionNotFoundError, InvalidStatusError."""
        found = self.find(txn)
        if found.status != OPEN:
            raise InvalidStatusError(f"transaction {txn} is {status_name(found.status)}, and takes nothing more")
        found.partitions.update(dict.fromkeys(partitions))
        found.subscriptions.update(dict.fromkeys(subscriptions))
        return found

    def decide(self, txn: TxnId, *, commit: bool) -> Transaction | None:
        """Return a transaction to be ended, or that is being ended that way; None: it is over, and ended that way.

        Raises TransactionNotFoundError, InvalidStatusError."""
        if txn.most == self.coordinator_id and self._ended.get(txn.least) is commit:
            return None
        if txn.most == self.coordinator_id and txn.least in self._ended:
            raise InvalidStatusError(f"transaction {txn} is {'ABORTED' if commit else 'COMMITTED'}")
        found = self.find(txn)
        if found.status == OPEN:
            return found
        if found.commits is not commit:
            raise InvalidStatusError(f"transaction {txn} is {status_name(found.status)}")
        return found

    def decided(self, transaction: Transaction, *, commit: bool) -> None:
        """The decision is on its way to the log: the transaction takes nothing more."""
        transaction.status = COMMITTING if commit else ABORTING

    def ended(self, transaction: Transaction) -> None:
        """Forget a transaction: all that were named have confirmed, and the log knows."""
        self.transactions.pop(transaction.id.least, None)
        self._note_end(transaction, transaction.commits)
        if transaction.commits:
            self.committed += 1
        else:
            self.aborted += 1

    def _note_end(self, transaction: Transaction, committed: bool) -> None:
        least = transaction.id.least
        self._ended[least] = committed
        if transaction.owner:
            self._owners[least] = transaction.owner
        if len(self._ended) > ENDED_MAX:
            self._owners.pop(self._ended.popitem(last=False)[0], None)

    @property
    def low_watermark(self) -> int:
        """Return the highest number up to which every transaction is over; -1: none is."""
        return next(iter(self.transactions), self.last_id + 1) - 1

    def undecided(self, txn: TxnId) -> bool:
        """Return whether the transaction may still commit here."""
        return txn.least in self.transactions or txn.least > self.last_id

    # Time

    def _await_end(self, transaction: Transaction) -> None:
        heappush(self._deadlines, (transaction.opened_ms + transaction.timeout_ms, transaction.id.least))

    def next_deadline_ms(self) -> int | None:
        """Return when `late` has to be called next."""
        while self._deadlines and not self._is_open(self._deadlines[0][1]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def late(self, now_ms: int) -> list[Transaction]:
        """Return the open transactions whose time is over, each once."""
        found: list[Transaction] = []
        while (deadline := self.next_deadline_ms()) is not None and deadline <= now_ms:
            found.append(self.transactions[heappop(self._deadlines)[1]])
        return found

    def _is_open(self, least: int) -> bool:
        found = self.transactions.get(least)
        return found is not None and found.status == OPEN

    # The log

    def replay(self, position: Position, record: TransactionMetadataEntry) -> list[Position]:
        """Learn from a record of the log; return the records that do not matter any more."""
        least = record.txnid_least_bits
        self.last_id = max(self.last_id, least, record.max_local_txn_id)
        found = self.transactions.get(least)
        if record.metadata_op == TransactionMetadataEntry.NEW:
            if found is None:
                txn = TxnId(self.coordinator_id, least)
                found = self.transactions[least] = Transaction(txn, record.start_time, record.timeout_ms, record.owner)
                self._await_end(found)
        elif found is None:
            return [position]
        assert found is not None, "a record of an unknown transaction was returned"
        found.positions.append(position)
        if record.metadata_op == TransactionMetadataEntry.ADD_PARTITION:
            found.partitions.update(dict.fromkeys(record.partitions))
        elif record.metadata_op == TransactionMetadataEntry.ADD_SUBSCRIPTION:
            found.subscriptions.update(dict.fromkeys((each.topic, each.subscription) for each in record.subscriptions))
        elif record.metadata_op == TransactionMetadataEntry.UPDATE:
            if record.new_status in (COMMITTED, ABORTED):
                del self.transactions[least]
                self._note_end(found, record.new_status == COMMITTED)
                return found.positions
            if found.status == OPEN:
                found.status = record.new_status
        return []

    def half_ended(self) -> list[Transaction]:
        """Return the transactions that were decided, and whose end some participant may not know."""
        return [each for each in self.transactions.values() if each.status != OPEN]

    def forget_all(self) -> None:
        """Drop the timers of a coordinator that is closed."""
        self._deadlines.clear()
