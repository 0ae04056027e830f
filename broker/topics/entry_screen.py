"""Screening of entries: invalid ones are not taken from producers, and stored ones are not delivered to consumers.

Why this is hard: a single entry with unreadable metadata would stop every subscription of a topic forever, because
official clients close the connection on it, reconnect, and receive it again. Such an entry is refused when it is
published, and a stored one is passed over. Yet parsing each entry again on delivery would cost as much as the delivery
itself. Entries published since the topic was loaded were checked then and cost nothing more; older entries are checked
when they are read."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Protocol

import trio

from managed_ledger.entry_run import EntryRun
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.wire.pulsar.entry_features import (
    BATCH,
    BROKER_METADATA,
    CHUNK,
    DELAYED,
    MARKER,
    TRANSACTION,
    UNREADABLE,
    EntryFeatures,
    features_of,
    without_broker_metadata,
)
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer

log = get_logger(__name__)

REFUSED = MARKER | TRANSACTION | UNREADABLE | BROKER_METADATA
"""Features for which an entry is not taken from a producer."""
LOG_INTERVAL_S = 60.0
"""Time in which at most one line per topic and reason is logged."""

UNREADABLE_METADATA = "unreadable metadata"
SERVER_MARKER = "server marker"


def why_refused(features: int) -> str:
    """Return the error text for the producer."""
    if features & UNREADABLE:
        return "the metadata of the message cannot be read, or lacks a required field: no consumer could take it"
    if features & TRANSACTION:
        return "the message is of a transaction, and transactions are off or its SEND names none"
    if features & MARKER:
        return "marker_type is for brokers: replication between clusters is not served"
    return "broker entry metadata is added by brokers only"


class Screened(NamedTuple):
    """Deliverable parts of a run."""

    run: EntryRun
    passed_over: list[Position]
    """Entries of it to acknowledge on behalf of their consumers."""


_PUBLIC = ("features", "known_after", "passed_over", "transactions")
_NEVER = Position(1 << 63, 0)


class HeldBack(Protocol):
    """Interface of what the transactions of a topic keep from its consumers."""

    def readable(self, run: EntryRun) -> EntryRun:
        """Return the part of a run that may be delivered now."""

    def hides(self, entry: Buffer) -> bool:
        """Return whether an entry belongs to a transaction that was aborted."""


class EntryScreen:
    """Screen of one topic."""

    __slots__ = ("_counts", "_features", "_keeps", "_logged", "_stamped_after", "_topic", *_PUBLIC)

    def __init__(self, topic: TopicName, known_after: Position, passed_over: Counter[str]) -> None:
        """Take the position behind which entries pass `published`.

        Args:
            known_after: entries behind it are published through `published`.
            passed_over: the broker's count by reason.
        """
        self.known_after = known_after
        self.features = 0
        """Features that any entry behind `known_after` has; DELAYED also if one before it has."""
        self.passed_over = passed_over
        self.transactions: HeldBack | None = None
        """Set by a topic with transactions, which has every entry screened."""
        self._topic = topic
        self._stamped_after = _NEVER
        """Entries behind it are published, and have metadata of this broker in front."""
        self._keeps = False
        self._features: EntryFeatures | None = None
        """Set from the first entry on that was checked here."""
        self._counts: Counter[str] | None = None
        self._logged: dict[str, float] | None = None
        """Both set from the first unusual entry on."""

    def expect_broker_metadata(self, *, keep: bool) -> None:
        """Screen all entries from now on: those that are published have metadata of this broker in front, which
        consumers get if `keep`."""
        self._keeps = keep
        self._stamped_after, self.known_after = self.known_after, _NEVER

    def knows(self, ledger_id: int, first_entry_id: int) -> bool:
        """Return whether all entries from this position on were checked when they were published."""
        return (ledger_id, first_entry_id) > self.known_after

    def has_only(self, features: int, ledger_id: int, first_entry_id: int) -> bool:
        """Return whether entries from this position on are known to have no features but these."""
        return not self.features & ~features and (ledger_id, first_entry_id) > self.known_after

    def screen(self, run: EntryRun) -> Screened | None:
        """Check entries that have not been checked; None: they can be delivered as they are."""
        if self.transactions is None and (run.ledger_id, run.first_entry_id) > self._stamped_after:
            if self._keeps:
                return None
            plain = list(map(without_broker_metadata, run.payloads))
            return Screened(EntryRun(run.ledger_id, run.first_entry_id, plain), [])
        if self._features is None:
            self._features = EntryFeatures()
        whole, transactions = run, self.transactions
        if transactions is not None:
            run = transactions.readable(run)
        unusual = self._features.unusual(run.payloads)
        if not unusual:
            return None if run is whole else Screened(run, [])
        ledger_id, first, _ = run
        payloads = list(run.payloads)
        passed_over: list[Position] = []
        for index, features in unusual:
            if features & TRANSACTION and self._is_of_transactions(features, payloads[index]):
                passed_over.append(Position(ledger_id, first + index))
                continue
            if features & (UNREADABLE | MARKER):
                passed_over.append(Position(ledger_id, first + index))
                self._note(UNREADABLE_METADATA if features & UNREADABLE else SERVER_MARKER, passed_over[-1])
                continue
            self.features |= features & DELAYED
            if features & BROKER_METADATA and not self._keeps:
                payloads[index] = without_broker_metadata(payloads[index])
            if features & TRANSACTION and transactions is None:
                self._warn(
                    "of a transaction; delivered whether it was aborted or not", Position(ledger_id, first + index)
                )
        return Screened(EntryRun(ledger_id, first, payloads), passed_over)

    def _is_of_transactions(self, features: int, entry: Buffer) -> bool:
        """Return whether an entry is a marker of a transaction, or a message of an aborted one."""
        if features & MARKER:
            return True
        return self.transactions is not None and self.transactions.hides(entry)

    def is_passed_over(self, entry: Buffer) -> bool:
        """Return whether an entry, before the bound of open transactions, is not delivered to any consumer."""
        features = features_of(entry, check=True)
        if features & TRANSACTION and self._is_of_transactions(features, entry):
            return True
        return bool(features & (UNREADABLE | MARKER))

    def _note(self, reason: str, position: Position) -> None:
        self.passed_over[reason] += 1
        self._warn(f"passed over and acknowledged: {reason}", position)

    def _warn(self, reason: str, position: Position) -> None:
        if self._counts is None or self._logged is None:
            self._counts, self._logged = Counter(), {}
        self._counts[reason] += 1
        now = trio.current_time()
        if now - self._logged.get(reason, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            return
        self._logged[reason] = now
        count = self._counts.pop(reason)
        log.warning(
            "unusual entry in topic", topic=self._topic.full, position=str(position), reason=reason, entries=count
        )


__all__ = [
    "BATCH",
    "CHUNK",
    "DELAYED",
    "REFUSED",
    "SERVER_MARKER",
    "UNREADABLE_METADATA",
    "EntryScreen",
    "HeldBack",
    "Screened",
    "why_refused",
]
