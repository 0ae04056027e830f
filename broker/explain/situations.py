"""Facts about subscriptions, taken from them at one moment for `delivery`. Nothing is changed by the look."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.single_active import SingleActiveSubscription
from broker.dispatch.subscription import Subscription
from broker.ends import Life
from broker.explain.causes import Reason
from broker.explain.delivery import ConsumerFacts, Obstacle, Situation, Waiting
from broker.topics.topic import Topic
from managed_ledger.writing.state import State
from quire.wire.pulsar import PulsarApi_pb2 as pb


def situation_of(topic: Topic, subscription: Subscription, reasons: Iterable[Reason] = ()) -> Situation:
    """Return the facts of this moment. `reasons`: what other rooms say of it."""
    ledger, cursor, options = topic.ledger, subscription.cursor, topic.context.options
    many = subscription if isinstance(subscription, ManyConsumers) else None
    single = subscription if isinstance(subscription, SingleActiveSubscription) else None
    if single is not None:
        asked = [] if single.active is None else [single.active]
    else:
        asked = list(subscription.consumers)
    pending = ledger.appends.pending
    rules = topic.delayed_delivery()
    usable = ledger.state not in (State.FENCED, State.CLOSING, State.CLOSED)
    return Situation(
        topic=topic.name.full,
        name=subscription.name,
        kind=pb.CommandSubscribe.SubType.Name(subscription.kind),
        closing=topic.closing or ledger.state in (State.CLOSING, State.CLOSED),
        fenced=ledger.state is State.FENCED,
        stopped=subscription.stopped,
        seeking=subscription.seeking,
        backlog=cursor.backlog(),
        unread=subscription.unread if usable else 0,
        delayed=subscription.delayed,
        next_due_ms=None if many is None else many.next_due_ms,
        now_ms=topic.context.world.clock.wall_ms(),
        tick_ms=rules.tick_ms,
        unconfirmed=sum(run.count for run in (*pending.sent, *pending.queued)),
        read_position=str(cursor.read_position),
        mark_delete=str(cursor.mark_delete),
        last_confirmed=str(ledger.last_confirmed),
        consumers=tuple(_facts(subscription, each) for each in asked),
        connected=len(subscription.consumers),
        failover_delay_s=None if single is None or single.waiting is None else options.failover_delay_s,
        reading=subscription.reading,
        read_ms=round((trio.current_time() - subscription.read_since) * 1000) if subscription.reading else 0,
        read_fails=subscription.retry is not None,
        settled=many is None or many.settled,
        put_off=subscription.is_put_off,
        unacked=0 if many is None else many.unacked,
        unacked_max=options.unacked_messages_per_subscription_max,
        consumer_unacked_max=options.unacked_messages_per_consumer_max,
        over_limit=many is not None and many.is_blocked,
        waiting_again=0 if many is None else many.waiting_again,
        lookahead=1 if many is None else many.lookahead(),
        waiting=None if many is None else _waiting(many),
        output_bytes=topic.context.output.queued.bytes,
        stop=subscription.stop_reason,
        reasons=tuple(reasons),
    )


def _facts(subscription: Subscription, consumer: Consumer[Subscription]) -> ConsumerFacts:
    permits = subscription.permits_of(consumer)
    if consumer.life is not Life.OPEN or consumer.connection.closed:
        obstacle = Obstacle.LEAVING
    elif permits <= 0:
        obstacle = Obstacle.NO_PERMITS
    elif consumer.blocked:
        obstacle = Obstacle.UNACKED
    elif consumer.connection.resuming:
        obstacle = Obstacle.OUTPUT
    else:
        obstacle = Obstacle.NONE
    return ConsumerFacts(
        name=consumer.name, permits=permits, unacked=subscription.unacked_of(consumer), obstacle=obstacle
    )


def _waiting(subscription: ManyConsumers) -> Waiting | None:
    if not subscription.settled:
        return None
    found = subscription.oldest_waiting()
    if found is None:
        return None
    position, refusal = found
    if refusal is None:
        return Waiting(position=str(position), why=None)
    return Waiting(
        position=str(position),
        why=refusal.why,
        consumer="" if refusal.consumer is None else refusal.consumer.name,
        owner="" if refusal.owner is None else refusal.owner.name,
        entries=refusal.entries,
    )
