"""Count of what a subscription still has to consume, in entries and in messages.

POST     {subscription}/analyzeBacklog     body: message id to begin at, or none: the first that is not acknowledged
                                           200; 404, 405 the topic is partitioned

It reads the backlog, so it is bounded in entries and in time; then `aborted` is true. The entry filters of the
subscription are asked about each entry, for no consumer.
Source: Pulsar's PersistentSubscription.analyzeBacklog and AnalyzeSubscriptionBacklogResult.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio
from starlette.responses import Response

from broker.admin.message_ids import parse
from broker.admin.positions.every import on_topic, subscription_of
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.dispatch.consumer import NO_PROPERTIES
from broker.dispatch.filtering import FilteringSubscription, decide, properties_of
from broker.dispatch.subscription import Subscription
from broker.entry_filters.entry_filter import FilteredEntry, FilterResult
from broker.errors import ServiceNotReadyError
from broker.topics.topic import Topic
from cursors.batch_acks import to_bits
from managed_ledger.entry_run import EntryRun
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import read_metadata
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from quire.world.doors import Buffer

_READ_BYTES = 1 << 20


@dataclass(slots=True)
class Counted:
    """Entries and messages counted so far."""

    entries: int = 0
    messages: int = 0
    """All messages of these entries, also those of a batch that are acknowledged."""
    unacked: int = 0
    """Messages that the subscription still gets: without the acknowledged ones of a batch."""
    markers: int = 0
    """Entries that servers have written for servers."""
    results: dict[FilterResult, list[int]] = field(default_factory=lambda: {each: [0, 0] for each in FilterResult})
    """Entries and messages by the result of the entry filters."""
    first: Position | None = None
    last: Position | None = None
    aborted: bool = True

    def as_json(self) -> dict[str, object]:
        """Return the original's names."""
        found: dict[str, object] = {
            "entries": self.entries,
            "messages": self.messages,
            "markerMessages": self.markers,
            "aborted": self.aborted,
        }
        for result, (entries, messages) in self.results.items():
            name = f"filter{result.value.capitalize().removesuffix('e')}ed"
            found[f"{name}Entries"], found[f"{name}Messages"] = entries, messages
        if self.first is not None and self.last is not None:
            found["firstMessageId"], found["lastMessageId"] = str(self.first), str(self.last)
        return found


async def analyze(call: AdminCall) -> Response:
    name, body = call.subscription(), await call.json()
    start = None if body is None else parse(body).position

    async def work(topic: Topic) -> dict[str, object]:
        subscription = subscription_of(topic, name)
        try:
            return (await count_backlog(subscription, start)).as_json()
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"subscription {name!r} cannot be analyzed: {error}") from error

    return answer(await on_topic(call, work))


async def count_backlog(subscription: Subscription, start: Position | None = None) -> Counted:
    """Read the entries from `start` on, or else from the first that is not acknowledged, and count those that are not.

    The bounds of broker.conf apply. Raises ManagedLedgerError."""
    options, ledger, cursor = subscription.topic.context.options, subscription.topic.ledger, subscription.cursor
    counted, left = Counted(), options.backlog_scan_entries_max
    at = ledger.next_position(cursor.mark_delete) if start is None else start
    end = ledger.last_confirmed
    with trio.move_on_after(options.backlog_scan_s):
        while at <= end and left > 0:
            at = cursor.next_unacked(at)
            if at > end:
                break
            run = await ledger.read(at, min(left, options.read_batch_entries_max), _READ_BYTES)
            if not run.payloads:
                break
            left -= _count(counted, subscription, run)
            at = ledger.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
        counted.aborted = left <= 0 and cursor.next_unacked(at) <= end
    return counted


def _count(counted: Counted, subscription: Subscription, run: EntryRun) -> int:
    """Count the entries of a run that are not acknowledged; return how many there are."""
    found = 0
    first = Position(run.ledger_id, run.first_entry_id)
    for start, count in subscription.cursor.unacked_runs(first, len(run.payloads)):
        for entry_id in range(start, start + count):
            place = Position(run.ledger_id, entry_id)
            counted.first, counted.last = counted.first or place, place
            found += 1
            stored = run.payloads[entry_id - run.first_entry_id]
            try:
                metadata = read_metadata(stored)
            except PulsarWireError:
                counted.entries += 1
                counted.messages += 1
                counted.unacked += 1
                continue
            if metadata.HasField("marker_type"):
                counted.markers += 1
            else:
                messages = max(1, metadata.num_messages_in_batch)
                counted.entries += 1
                counted.messages += messages
                wanted = subscription.cursor.ack_set(place)
                counted.unacked += messages if wanted is None else min(messages, to_bits(wanted).bit_count())
                of_result = counted.results[_result(subscription, place, metadata, stored)]
                of_result[0] += 1
                of_result[1] += messages
    return found


def _result(subscription: Subscription, place: Position, metadata: MessageMetadata, stored: Buffer) -> FilterResult:
    """Return what the filters of the subscription say about an entry; one that fails would reschedule it."""
    filters = subscription.rules.filters if isinstance(subscription, FilteringSubscription) else ()
    if not filters:
        return FilterResult.ACCEPT
    properties = properties_of(subscription.cursor)
    names = (subscription.topic.name.full, subscription.name, properties, "", NO_PROPERTIES)
    try:
        return decide(filters, FilteredEntry(*names, *place, metadata, stored))
    except Exception as error:
        subscription.log.debug("entry filter failed", position=str(place), reason=repr(error))
        return FilterResult.RESCHEDULE
