"""Moves of a subscription's cursor that operators and the expiry of messages ask for: skip, clear, expire, reset.

Entries that a move acknowledges are taken back from the consumers and from the queue of those to be delivered again,
and the position is durable on return. A reset, which may go back, is a seek: it disconnects the consumers.

Source: Pulsar's PersistentSubscription (skipMessages, clearBacklog, expireMessages, resetCursor) and
PersistentMessageExpiryMonitor.
"""

from __future__ import annotations

from broker.dispatch.policies.expired import wholly_expired
from broker.dispatch.publish_time import first_published_at, last_published_before
from broker.dispatch.subscription import Subscription
from broker.errors import BrokerError, NothingExpiredError, ServiceNotReadyError, SubscriptionBusyError
from broker.slices import run_through
from cursors.batch_acks import to_words
from cursors.errors import CursorError, InvalidAckError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import batch_count

BACKLOG_LOOKED_AT = 1000
"""Entries of a backlog below which a subscription with consumers expires nothing unless its oldest message is. Source:
the original's MINIMUM_BACKLOG_FOR_EXPIRY_CHECK."""


async def skip(subscription: Subscription, count: int) -> None:
    """Acknowledge the next `count` entries that are not acknowledged. Raises BrokerError."""
    _check(subscription)
    subscription.cursor.skip(count)
    await _moved(subscription)


async def skip_all(subscription: Subscription) -> None:
    """Acknowledge every confirmed entry. Raises BrokerError."""
    _check(subscription)
    subscription.cursor.skip_all()
    await _moved(subscription)


async def reset_to_time(subscription: Subscription, publish_time_ms: int) -> None:
    """Deliver next the first entry published at or after a time. Raises BrokerError."""
    _check(subscription)
    try:
        target = await first_published_at(subscription.topic.ledger, publish_time_ms)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"reset of subscription {subscription.name!r}: {error}") from error
    _check(subscription)
    await subscription.seek(target)


async def reset(subscription: Subscription, target: Position, *, batch_index: int = -1, excluded: bool = False) -> None:
    """Deliver next the entry at `target`, or the one behind it; of a batch the message at `batch_index`, or the one
    behind that. Raises BrokerError. Source: PersistentTopicsBase.calculatePositionAckSet."""
    _check(subscription)
    ack_set: tuple[int, ...] = ()
    if target not in (EARLIEST, LATEST):
        size = await _batch_size(subscription.topic.ledger, target) if batch_index >= 0 else 0
        first = batch_index + excluded
        if 0 < first < size:
            ack_set = tuple(to_words((1 << size) - (1 << first)))
        elif excluded and first >= size:
            target = Position(target.ledger_id, target.entry_id + 1)
    _check(subscription)
    await subscription.seek(target, ack_set)


async def expire_older(subscription: Subscription, seconds: int) -> None:
    """Acknowledge the oldest messages that were published more than so many seconds ago.

    Raises NothingExpiredError: there is no backlog, or it is that of consumers that have almost caught up, or another
    expiry of the subscription is under way; other BrokerErrors."""
    _check(subscription)
    topic, cursor, expiry = subscription.topic, subscription.cursor, subscription.expiry
    backlog, before_ms = cursor.backlog(), topic.context.world.clock.wall_ms() - 1000 * seconds
    if backlog == 0 or expiry.running:
        raise _nothing_expired(subscription)
    expiry.running = True
    try:
        found = await expired_through(topic.ledger, cursor.mark_delete, before_ms)
        if found is None and subscription.consumers and backlog < BACKLOG_LOOKED_AT:
            raise _nothing_expired(subscription)
        _check(subscription)
        if found is not None:
            await expire_through(subscription, found)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"expiry of subscription {subscription.name!r}: {error}") from error
    finally:
        expiry.running = False


async def expire_to(subscription: Subscription, target: Position, *, excluded: bool = False) -> None:
    """Acknowledge everything up to and including the entry at `target`, or the last one before it. `excluded`: the
    entry at `target` itself is kept, of a batch all of it.

    Raises NothingExpiredError: there is no such entry yet, or another expiry of the subscription is under way; other
    BrokerErrors."""
    _check(subscription)
    ledger = subscription.topic.ledger
    if target > ledger.last_confirmed or subscription.expiry.running:
        raise _nothing_expired(subscription)
    last = ledger.last_entry_of(target.ledger_id)
    exists = last is not None and 0 <= target.entry_id <= last and not excluded
    await expire_through(subscription, target if exists else ledger.previous_position(target))


async def expire_through(subscription: Subscription, position: Position) -> None:
    """Acknowledge everything up to and including an entry, and count what that expires. Durable on return. Raises
    BrokerError."""
    cursor, expiry = subscription.cursor, subscription.expiry
    expiry.last_ms = subscription.topic.context.world.clock.wall_ms()
    backlog = cursor.backlog()
    try:
        if not cursor.ack_cumulative(position):
            return
    except InvalidAckError:
        return  # its ledger was trimmed meanwhile
    expiry.expired += backlog - cursor.backlog()
    await _moved(subscription)


async def expired_through(ledger: ManagedLedger, mark_delete: Position, before_ms: int) -> Position | None:
    """Return the last of the oldest entries above the mark-delete position that were published before a time, or whose
    ledger was closed before it; None: there is none. Raises ManagedLedgerError."""
    closed = wholly_expired(ledger.ledgers, mark_delete, before_ms)
    if closed is not None and closed > ledger.last_confirmed:
        closed = ledger.last_confirmed
    start = mark_delete if closed is None else max(closed, mark_delete)
    found = await last_published_before(ledger, before_ms, ledger.next_position(start))
    return found if found is not None else closed if closed is not None and closed > mark_delete else None


async def _batch_size(ledger: ManagedLedger, position: Position) -> int:
    """Return the messages of an entry, 0 if there is none."""
    last = ledger.last_entry_of(position.ledger_id)
    if last is None or not 0 <= position.entry_id <= last:
        return 0
    try:
        run = await ledger.read(position, 1, 1)
        return batch_count(run.payloads[0])
    except (ManagedLedgerError, PulsarWireError) as error:
        raise ServiceNotReadyError(f"{position} cannot be read: {error}") from error


def _check(subscription: Subscription) -> None:
    if subscription.seeking or subscription.stopped:
        raise SubscriptionBusyError(f"subscription {subscription.name!r} is being moved or closed")


def _nothing_expired(subscription: Subscription) -> BrokerError:
    return NothingExpiredError(
        f"no messages of subscription {subscription.name!r} are expired: it has almost caught up, the position is not "
        "there yet, or an expiry is under way"
    )


async def _moved(subscription: Subscription) -> None:
    """Release what consumers hold of the entries that are acknowledged now, and wait until the position is durable."""
    await run_through(subscription.release_acked())
    subscription.pump()
    subscription.topic.context.turn.flush()
    try:
        await subscription.cursor.wait_persisted()
    except CursorError as error:
        raise ServiceNotReadyError(f"subscription {subscription.name!r}: {error}") from error
