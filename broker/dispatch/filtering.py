"""Subscriptions that obey the rules of delivery of their topic: entry filters, and limits that policies may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from broker.dispatch.consumer import NO_PROPERTIES, Consumer
from broker.dispatch.ports import Host
from broker.dispatch.rules import effective_rules
from broker.dispatch.subscription import Subscription
from broker.entry_filters.entry_filter import EntryFilter, FilteredEntry, FilterResult
from broker.errors import NotAllowedError
from cursors.cursor import Cursor
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import read_metadata
from quire.world.doors import Buffer

log = get_logger(__name__)

FILTER_COST = 10
"""Cost of a filter's look at an entry in the work of a pass."""
LOG_INTERVAL_S = 60.0


class Filtered:
    """Counts of the entry filters of one subscription, in messages, since the topic was loaded."""

    __slots__ = ("accepted", "logged_at", "processed", "rejected", "rescheduled")

    def __init__(self) -> None:
        self.processed = self.accepted = self.rejected = self.rescheduled = 0
        self.logged_at = float("-inf")


def decide(filters: Sequence[EntryFilter], entry: FilteredEntry) -> FilterResult:
    """Return what becomes of an entry: the first result that does not accept it."""
    for each in filters:
        result = each.filter_entry(entry)
        if result is not FilterResult.ACCEPT:
            if not isinstance(result, FilterResult):
                raise TypeError(f"{type(each).__name__}.filter_entry returned {result!r}")
            return result
    return FilterResult.ACCEPT


def properties_of(cursor: Cursor) -> Mapping[str, str]:
    """Return the properties of a subscription."""
    return dict(cursor.cursor_properties) if cursor.cursor_properties else NO_PROPERTIES


class FilteringSubscription(Subscription):
    """Part of all types: the rules of delivery."""

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self.rules = effective_rules(topic.context.delivery, topic.context.filters, topic.policies)
        self.filtered: Filtered | None = None
        """Set from the first entry on that a filter was asked about."""

    def follow_policies(self) -> None:
        context = self.topic.context
        rules = effective_rules(context.delivery, context.filters, self.topic.policies)
        if rules == self.rules:
            return
        self.rules = rules
        if rules.problem:
            self.log.warning("nothing is delivered", reason=rules.problem)
            self.disconnect_all()
        else:
            self.pump()

    def add_consumer(self, consumer: Consumer[Subscription]) -> None:
        """See `Subscription`. Raises NotAllowedError too, if a policy names a filter that is not there."""
        if self.rules.problem:
            raise NotAllowedError(self.rules.problem)
        super().add_consumer(consumer)

    # Filters

    def _results(
        self,
        consumer: Consumer[Subscription],
        ledger_id: int,
        entry_ids: Sequence[int],
        payloads: Sequence[Buffer],
        counts: Sequence[int],
    ) -> list[FilterResult]:
        """Ask the filters about entries, count the results, and acknowledge what they reject."""
        self._turn.left -= len(entry_ids) * FILTER_COST * len(self.rules.filters)
        filtered = self.filtered or Filtered()
        self.filtered = filtered
        properties = properties_of(self.cursor)
        results: list[FilterResult] = []
        rejected: list[Position] = []
        for index, entry_id in enumerate(entry_ids):
            stored, count = payloads[index], counts[index]
            result = self._result(filtered, consumer, properties, ledger_id, entry_id, stored)
            results.append(result)
            filtered.processed += count
            if result is FilterResult.ACCEPT:
                filtered.accepted += count
            elif result is FilterResult.REJECT:
                filtered.rejected += count
                rejected.append(Position(ledger_id, entry_id))
            else:
                filtered.rescheduled += count
        if rejected:
            self.cursor.ack_individual(rejected)
        return results

    def _result(
        self,
        filtered: Filtered,
        consumer: Consumer[Subscription],
        properties: Mapping[str, str],
        ledger_id: int,
        entry_id: int,
        stored: Buffer,
    ) -> FilterResult:
        try:
            metadata = read_metadata(stored)
        except PulsarWireError:
            return FilterResult.ACCEPT  # such entries are screened; this one came in since
        entry = FilteredEntry(
            self.topic.name.full,
            self.name,
            properties,
            consumer.name,
            consumer.properties,
            ledger_id,
            entry_id,
            metadata,
            stored,
        )
        try:
            return decide(self.rules.filters, entry)
        except Exception as error:
            now = trio.current_time()
            if now - filtered.logged_at >= LOG_INTERVAL_S:
                filtered.logged_at = now
                self.log.error(
                    "entry filter failed; the entry is offered again later",
                    position=f"{ledger_id}:{entry_id}",
                    reason=repr(error),
                    exc_info=error,
                )
            return FilterResult.RESCHEDULE


def filtered_by(subscription: Subscription) -> Filtered:
    """Return the counts of a subscription's filters."""
    found = subscription.filtered if isinstance(subscription, FilteringSubscription) else None
    return found or Filtered()
