"""Facts about subscriptions, taken from them at one moment for `delivery`. Nothing is changed by the look."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.filtering import FilteringSubscription
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.single_active import SingleActiveSubscription
from broker.dispatch.subscription import Subscription
from broker.ends import Life
from broker.explain.causes import Reason
from broker.explain.delivery import ENTRIES, MESSAGES, OF_ITS_KEYS, ConsumerFacts, Obstacle, Situation, Waiting
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
    rules = subscription.rules if isinstance(subscription, FilteringSubscription) else topic.context.delivery
    unacked = topic.context.unacked
    for_filter = single is not None and single.waits_for_filter
    rescheduled = [cursor.read_position] if for_filter else [] if many is None else many.rescheduled
    usable = ledger.state not in (State.FENCED, State.CLOSING, State.CLOSED)
    unread, held_back = _unread(topic, subscription) if usable else (0, 0)
    in_transactions, open_transactions, holder = _in_transactions(subscription)
    return Situation(
        topic=topic.name.full,
        name=subscription.name,
        kind=pb.CommandSubscribe.SubType.Name(subscription.kind),
        closing=topic.closing or ledger.state in (State.CLOSING, State.CLOSED),
        fenced=ledger.state is State.FENCED,
        stopped=subscription.stopped,
        seeking=subscription.seeking,
        backlog=cursor.backlog(),
        unread=unread,
        held_back=held_back,
        bound=str(topic.read_bound),
        transaction=_first_open(topic),
        in_transactions=in_transactions,
        open_transactions=open_transactions,
        holder=holder,
        delayed=subscription.delayed,
        next_due_ms=None if many is None else many.next_due_ms,
        now_ms=topic.context.world.clock.wall_ms(),
        tick_ms=topic.delayed_delivery().tick_ms,
        unconfirmed=sum(run.count for run in (*pending.sent, *pending.queued)),
        read_position=str(cursor.read_position),
        mark_delete=str(cursor.mark_delete),
        last_confirmed=str(ledger.last_confirmed),
        consumers=tuple(_facts(subscription, each, *_held(subscription, each, in_transactions)) for each in asked),
        connected=len(subscription.consumers),
        failover_delay_s=None if single is None or single.waiting is None or for_filter else options.failover_delay_s,
        reading=subscription.reading,
        read_ms=round((trio.current_time() - subscription.read_since) * 1000) if subscription.reading else 0,
        read_fails=subscription.retry is not None,
        settled=many is None or many.settled,
        put_off=subscription.is_put_off,
        unacked=0 if many is None else many.unacked,
        unacked_max=rules.unacked_per_subscription,
        consumer_unacked_max=rules.unacked_per_consumer,
        over_limit=many is not None and many.is_over_limit,
        over_broker_limit=many is not None and many.is_over_broker_limit,
        broker_unacked=0 if unacked is None else unacked.messages,
        broker_unacked_max=0 if unacked is None else unacked.limit,
        broker_unacked_share=0 if unacked is None else unacked.share,
        keeps_new_back=many is not None and many.keeps_new_back,
        ranges=cursor.range_count,
        ranges_max=0 if cursor.store is None else cursor.store.node.ranges_max,
        rescheduled=len(rescheduled),
        rescheduled_first=str(rescheduled[0]) if rescheduled else "none",
        rescheduled_stops=for_filter or (many is not None and many.has_rescheduled_most),
        reschedule_delay_s=options.filter_reschedule_delay_s,
        waiting_again=0 if many is None else many.waiting_again,
        lookahead=1 if many is None else many.lookahead(),
        waiting=None if many is None else _waiting(many),
        output_bytes=topic.context.output.queued.bytes,
        stop=subscription.stop_reason,
        reasons=tuple(reasons),
    )


def _unread(topic: Topic, subscription: Subscription) -> tuple[int, int]:
    """Return the entries from the read position on: those that may be delivered, and those that an open transaction
    holds back."""
    unread, ledger, bound = subscription.unread, topic.ledger, topic.read_bound
    if bound is None or not unread:
        return unread, 0
    before = ledger.previous_position(subscription.cursor.read_position)
    held_back: int = ledger.count_between(max(bound, before), ledger.last_confirmed)
    return unread - held_back, held_back


def _first_open(topic: Topic) -> str:
    """Return the transaction that holds entries back, as paths of the admin REST have it."""
    found = None if topic.read_bound is None or topic.transactions is None else topic.transactions.first_open()
    return "" if found is None else f"{found[0]}/{found[1]}"


def _in_transactions(subscription: Subscription) -> tuple[int, int, str]:
    """Return how many entries are acknowledged in open transactions, how many those are, and the oldest of them."""
    held = subscription.held_in_transactions
    found = None if held is None else held.summary()
    if found is None:
        return 0, 0, ""
    ledger, cursor = subscription.topic.ledger, subscription.cursor
    upto = 0 if found.upto is None else ledger.count_between(cursor.mark_delete, found.upto)
    return max(found.entries, upto), found.transactions, f"{found.oldest[0]}/{found.oldest[1]}"


def _held(subscription: Subscription, consumer: Consumer[Subscription], in_transactions: int) -> tuple[int, str]:
    """Return what a consumer holds, and its unit. Exclusive and Failover count no messages: their active consumer holds
    each entry before the read position."""
    if not isinstance(subscription, SingleActiveSubscription):
        return subscription.unacked_of(consumer), MESSAGES
    unit = OF_ITS_KEYS if subscription.passes_over else ENTRIES
    return max(0, subscription.cursor.delivered() - in_transactions), unit


def _facts(subscription: Subscription, consumer: Consumer[Subscription], unacked: int, unit: str) -> ConsumerFacts:
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
    return ConsumerFacts(name=consumer.name, permits=permits, unacked=unacked, unit=unit, obstacle=obstacle)


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
