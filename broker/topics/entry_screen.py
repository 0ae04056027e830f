"""What stands between stored entries and consumers, and between SENDs and the log: which entries are what they should be.

One entry whose metadata cannot be read would stop every subscription of a topic for ever: official clients close the connection
on it, connect again, and get it again. So such an entry is not taken from a producer, and one that is stored is passed over.
What was published since the topic was loaded was looked at then and costs nothing more; older entries are looked at when they
are read.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

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

REFUSED = DELAYED | MARKER | TRANSACTION | UNREADABLE | BROKER_METADATA
"""Features of an entry that is not taken from a producer."""
LOG_INTERVAL_S = 60.0
"""At most one line per topic and reason in this time."""

UNREADABLE_METADATA = "unreadable metadata"
SERVER_MARKER = "server marker"


def why_refused(features: int) -> str:
    """What a producer is told."""
    if features & UNREADABLE:
        return "the metadata of the message cannot be read, or lacks a required field: no consumer could take it"
    if features & DELAYED:
        return "deliver_at_time (deliverAt, deliverAfter) is not served: the message would be delivered at once. Send it without"
    if features & TRANSACTION:
        return "transactions are not served"
    if features & MARKER:
        return "marker_type is for brokers: replication between clusters is not served"
    return "broker entry metadata is added by brokers only"


class Screened(NamedTuple):
    """What of a run may be delivered."""

    run: EntryRun
    passed_over: list[Position]
    """Entries in it that are to be acknowledged in place of their consumers."""


class EntryScreen:
    """Of one topic."""

    __slots__ = ("_counts", "_features", "_logged", "_topic", "features", "known_after", "passed_over")

    def __init__(self, topic: TopicName, known_after: Position, passed_over: Counter[str]) -> None:
        """`known_after`: entries behind it are published through `published`. `passed_over`: the broker's count by reason."""
        self.known_after = known_after
        self.features = 0
        """What any entry behind `known_after` has."""
        self.passed_over = passed_over
        self._topic = topic
        self._features: EntryFeatures | None = None
        """From the first entry on that is looked at here."""
        self._counts: Counter[str] | None = None
        self._logged: dict[str, float] | None = None
        """Both from the first unusual entry on."""

    def knows(self, ledger_id: int, first_entry_id: int) -> bool:
        """Return whether the entries from there on were looked at when they were published."""
        return (ledger_id, first_entry_id) > self.known_after

    def has_only(self, features: int, ledger_id: int, first_entry_id: int) -> bool:
        """Return whether it is known that entries from there on have none but these features."""
        return not self.features & ~features and (ledger_id, first_entry_id) > self.known_after

    def screen(self, run: EntryRun) -> Screened | None:
        """Look at entries that nobody has looked at yet; None: they can be delivered as they are."""
        if self._features is None:
            self._features = EntryFeatures()
        unusual = self._features.unusual(run.payloads)
        if not unusual:
            return None
        ledger_id, first, _ = run
        payloads = list(run.payloads)
        passed_over: list[Position] = []
        for index, features in unusual:
            if features & (UNREADABLE | MARKER):
                passed_over.append(Position(ledger_id, first + index))
                self._note(UNREADABLE_METADATA if features & UNREADABLE else SERVER_MARKER, passed_over[-1])
                continue
            if features & BROKER_METADATA:
                payloads[index] = without_broker_metadata(payloads[index])
            if features & TRANSACTION:
                self._warn(
                    "of a transaction; delivered whether it was aborted or not", Position(ledger_id, first + index)
                )
        return Screened(EntryRun(ledger_id, first, payloads), passed_over)

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
            "entry of a topic is unusual", topic=self._topic.full, position=str(position), reason=reason, entries=count
        )


def is_passed_over(entry: Buffer) -> bool:
    """Return whether no consumer gets the entry."""
    return bool(features_of(entry, check=True) & (UNREADABLE | MARKER))


__all__ = [
    "BATCH",
    "CHUNK",
    "REFUSED",
    "SERVER_MARKER",
    "UNREADABLE_METADATA",
    "EntryScreen",
    "Screened",
    "is_passed_over",
    "why_refused",
]
