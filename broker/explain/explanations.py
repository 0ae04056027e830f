"""Explanations of one broker: facts are taken from topics, and told by the pure cores of this room.

Everything is computed when it is asked for, from what the broker keeps anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.dispatch.subscription import Subscription
from broker.explain import delivery, ledgers, publishing
from broker.explain.causes import Explanation, Reason
from broker.explain.delivery import Situation
from broker.explain.doors import ExplainingRoom
from broker.explain.ledgers import Holder
from broker.explain.publishing import Publishing
from broker.explain.situations import situation_of
from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from broker.topics.topic import Topic
from cursors.cursor import Cursor
from managed_ledger.trimming import trimmable
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.ledger.writing.writer import OpenLedger

COMPACTION_CURSOR = "__compaction"
"""Source: the original's Compactor.COMPACTION_SUBSCRIPTION."""
_KINDS = {DEDUPLICATION_CURSOR: "cursor of deduplication", COMPACTION_CURSOR: "cursor of compaction"}


class Explanations:
    """Explanations of one broker."""

    def __init__(self, doors: Sequence[ExplainingRoom], since_ms: Callable[[Subscription], int | None]) -> None:
        """Take the rooms that may be the cause, and what is known of when a subscription made progress last."""
        self._doors = doors
        self._since_ms = since_ms

    # Subscriptions

    def situation(self, topic: Topic, subscription: Subscription) -> Situation:
        """Return the facts about a subscription."""
        found = (door.why_not_delivered(topic, subscription) for door in self._doors)
        return situation_of(topic, subscription, [reason for reason in found if reason is not None])

    def delivery(self, topic: Topic, subscription: Subscription, situation: Situation | None = None) -> Explanation:
        """Return why nothing is delivered to a subscription. `situation`: its facts, if the caller has taken them."""
        return delivery.explain(situation or self.situation(topic, subscription), since_ms=self._since_ms(subscription))

    # Producers

    def producers(self, topic: Topic) -> Explanation:
        """Return why the producers of a topic wait."""
        return publishing.explain(self.publishing(topic))

    def publishing(self, topic: Topic) -> Publishing:
        """Return the facts about the producers of a topic."""
        ledger, context, access = topic.ledger, topic.context, topic.access
        writer, pending = ledger.appends.writer, ledger.appends.pending
        opened = writer if isinstance(writer, OpenLedger) else None
        limit = context.options.pending_sends_max
        busiest = max(topic.producers.values(), key=lambda each: each.connection.sends_in_flight, default=None)
        in_flight = 0 if busiest is None else busiest.connection.sends_in_flight
        holder = "" if access is None or access.holder is None else access.holder.name
        found: list[Reason | None] = [door.why_not_published(topic) for door in self._doors]
        return Publishing(
            topic=topic.name.full,
            closing=topic.closing or ledger.state in (State.CLOSING, State.CLOSED),
            fenced=ledger.state is State.FENCED,
            terminated=ledger.state is State.TERMINATED,
            no_room=context.no_room(),
            producers=tuple(topic.producers),
            pending=sum(run.count for run in (*pending.sent, *pending.queued)),
            pending_bytes=ledger.pending_bytes,
            switching=ledger.state is State.SWITCHING,
            trouble=ledger.appends.trouble,
            ledger_id=-1 if writer is None else writer.ledger_id,
            bookies=() if opened is None else tuple(opened.metadata.fragments[-1].bookies),
            failed_bookies={} if opened is None else opened.failed_bookies,
            budget_bytes=context.publishing.bytes,
            budget_limit=context.publishing.limit,
            is_over_budget=context.publishing.bytes > context.publishing.limit,
            full=busiest.name if busiest is not None and in_flight > limit else "",
            in_flight=in_flight,
            in_flight_max=limit,
            holder=holder or next(iter(topic.producers), ""),
            claims=() if access is None else tuple(claim.name for claim in access.waiting),
            settling=topic.deduplication is not None and topic.deduplication.is_awaited,
            reasons=tuple(reason for reason in found if reason is not None),
        )

    # Ledgers

    def ledgers(self, topic: Topic) -> list[Explanation]:
        """Return what keeps the ledgers of a topic, from the first on."""
        ledger = topic.ledger
        infos, retention = ledger.ledgers, ledger.effective_retention()
        cursor = min(ledger.cursors.values(), key=durable_position, default=None)
        choice = trimmable(
            infos,
            infos[-1].ledger_id if infos else -1,
            None if cursor is None else durable_position(cursor),
            retention,
            total_size=ledger.size,
            now_ms=topic.context.world.clock.wall_ms(),
        )
        return ledgers.explain(
            topic.name.full,
            infos,
            choice,
            None if cursor is None else self._holder(topic, cursor),
            retention,
            current_size=ledger.size - sum(info.size for info in infos),
        )

    def _holder(self, topic: Topic, cursor: Cursor) -> Holder:
        subscription = topic.subscriptions.get(cursor.name)
        if cursor.durable_mark_delete < cursor.mark_delete:
            why = f"it is at {cursor.mark_delete}, which is not stored yet"
        elif subscription is None:
            why = "it moves when its owner stores a snapshot"
        else:
            why = self.delivery(topic, subscription).code
        return Holder(
            cursor=cursor.name,
            kind=_KINDS.get(cursor.name, "subscription"),
            mark_delete=str(durable_position(cursor)),
            backlog=cursor.backlog(),
            why=why,
        )


def durable_position(cursor: Cursor) -> Position:
    """Return the position behind which a cursor keeps entries."""
    return min(cursor.mark_delete, cursor.durable_mark_delete)
