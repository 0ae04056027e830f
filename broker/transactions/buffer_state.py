"""State of the transactions in the log of a topic (pure core of `buffer`).

Why this is hard: messages of open transactions lie between others in the log, and consumers read in order. Nothing
behind the first message of an open transaction is delivered, because that transaction may still commit; messages of an
aborted one are passed over, as long as the log has them, also after a restart that reads only the end of the log.

What holds after every call:
- NothingOpenIsRead: `read_bound` is before the first message of every open transaction.
- BoundNeverGoesBack: as long as it is not None, it only moves on; it begins at the end of the log.
- AbortedIsNeverForgotten: an aborted transaction is known until the ledger of its marker is trimmed.
- EndedTakesNothing: a transaction that is ended here gets no more messages, so its marker is behind all of them.

Source: Pulsar's TopicTransactionBuffer, SingleSnapshotAbortedTxnProcessorImpl.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position

ENDED_MAX = 10_000
"""Transactions that were committed here, which are remembered to refuse late messages of theirs."""
ABORTED_STORED_MAX = 2000
"""Aborted transactions in a snapshot. Beyond that, a snapshot begins further back in the log."""


class Aborted(NamedTuple):
    """An aborted transaction."""

    first: Position | None
    """Its first message; None: not known, because it is from a snapshot."""
    marker: Position
    """Its marker; from an old snapshot, or one in segments, only the ledger is right."""


class SnapshotError(Exception):
    """A stored snapshot cannot be read. Permanent."""


class Snapshot(NamedTuple):
    """Stored form of a topic's transactions: the state at `position`, behind which the log is read."""

    position: Position
    aborted: dict[TxnId, Aborted]
    low_watermarks: dict[int, int]

    def encode(self) -> str:
        """
        >>> Snapshot(Position(3, 4), {TxnId(1, 7): Aborted(None, Position(3, 2))}, {1: 6}).encode()
        '{"position":[3,4],"aborted":[[1,7,3]],"watermarks":[[1,6]]}'
        """
        fields = {
            "position": [*self.position],
            "aborted": [[*txn, each.marker.ledger_id] for txn, each in self.aborted.items()],
            "watermarks": [[*item] for item in self.low_watermarks.items()],
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Snapshot:
        """Raises SnapshotError."""
        try:
            fields = json.loads(text)
            ledger_id, entry_id = fields["position"]
            aborted = {TxnId(int(a), int(b)): Aborted(None, Position(int(c), -1)) for a, b, c in fields["aborted"]}
            marks = {int(a): int(b) for a, b in fields["watermarks"]}
            return cls(Position(int(ledger_id), int(entry_id)), aborted, marks)
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"the snapshot of the transactions of a topic cannot be read: {error}") from None


def united(found: Iterable[Snapshot]) -> Snapshot | None:
    """Return what several snapshots of one topic say together; None: there is none."""
    result: Snapshot | None = None
    for each in found:
        if result is None:
            result = each
            continue
        marks = {
            number: max(known.get(number, -1) for known in (each.low_watermarks, result.low_watermarks))
            for number in {**each.low_watermarks, **result.low_watermarks}
        }
        result = Snapshot(max(result.position, each.position), {**result.aborted, **each.aborted}, marks)
    return result


class BufferState:
    """Transactions in the log of one topic."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.open: dict[TxnId, Position] = {}
        """First message of each open transaction, in the order of the log."""
        self.aborted: dict[TxnId, Aborted] = dict(snapshot.aborted)
        self.low_watermarks: dict[int, int] = dict(snapshot.low_watermarks)
        """By coordinator: all transactions up to it are over."""
        self.committed = 0
        self.aborted_count = 0
        self._ended: OrderedDict[TxnId, None] = OrderedDict()
        """TransactionsOfTopic whose end is stored here, or on its way to the log."""

    # The log

    def message(self, txn: TxnId, position: Position) -> bool:
        """Note a message that is in the log now; return whether it is the first of its transaction."""
        if txn in self.open or txn in self.aborted:
            return False
        self.open[txn] = position
        return True

    def marker(self, txn: TxnId, position: Position, *, commit: bool) -> None:
        """Note a marker that is in the log now."""
        self.ending(txn)
        first = self.open.pop(txn, None)
        if commit:
            self.committed += 1
        else:
            self.aborted_count += 1
            if first is not None:  # else no message of it is in the log
                self.aborted[txn] = Aborted(first, position)

    def ending(self, txn: TxnId) -> None:
        """Note that a marker is on its way to the log."""
        self._ended[txn] = None
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    # Questions

    def first_open(self) -> Position | None:
        """Return the first message of all open transactions."""
        return next(iter(self.open.values()), None)

    def is_hidden(self, txn: TxnId) -> bool:
        """Return whether a message of the transaction, before the bound, is not delivered."""
        return txn in self.aborted

    def takes(self, txn: TxnId) -> bool:
        """Return whether the transaction may still get messages here."""
        if txn in self.open:
            return txn not in self._ended
        return txn not in self._ended and txn not in self.aborted and txn.least > self.low_watermarks.get(txn.most, -1)

    # Low watermark

    def raise_watermark(self, coordinator_id: int, low_watermark: int) -> list[TxnId]:
        """Note up to which number transactions of a coordinator are over; return those open here that are: nobody will
        end them any more."""
        if low_watermark > self.low_watermarks.get(coordinator_id, -1):
            self.low_watermarks[coordinator_id] = low_watermark
        mark = self.low_watermarks.get(coordinator_id, -1)
        return [txn for txn in self.open if txn.most == coordinator_id and txn.least <= mark and txn not in self._ended]

    # Snapshots

    def trim(self, has_ledger: Callable[[int], bool]) -> None:
        """Forget aborted transactions whose marker is trimmed."""
        known: dict[int, bool] = {}
        for txn, each in list(self.aborted.items()):
            ledger_id = each.marker.ledger_id
            if ledger_id not in known:
                known[ledger_id] = has_ledger(ledger_id)
            if not known[ledger_id]:
                del self.aborted[txn]

    def snapshot(self, end: Position, before: Callable[[Position], Position]) -> Snapshot:
        """Return the state to be stored. `end`: the last entry; `before`: returns the place before another."""
        first = self.first_open()
        position = end if first is None else before(first)
        kept: dict[TxnId, Aborted] = {}
        for txn, each in self.aborted.items():
            if len(kept) < ABORTED_STORED_MAX or each.first is None:
                kept[txn] = each
            else:
                position = min(position, before(each.first))
        return Snapshot(position, kept, dict(self.low_watermarks))
