"""Cursors of subscriptions: where a new one begins, its opening and its deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from broker.dispatch.publish_time import first_published_at
from broker.dispatch.subscription import Subscription
from broker.errors import ServiceNotReadyError
from broker.positions import position_of
from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError, NoSuchCursorError
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.wire.pulsar import PulsarApi_pb2 as pb

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Properties of a topic or subscription."""


async def open_subscribed(ledger: ManagedLedger, topic: str, subscribe: pb.CommandSubscribe, wall_ms: int) -> Cursor:
    """The cursor of the subscription that a SUBSCRIBE names, made (durably) if it is new. `wall_ms`: now.
    ServiceNotReadyError."""
    start = start_position(subscribe)
    if subscribe.start_message_rollback_duration_sec > 0:
        # It has precedence over a start id: Java sends both, with the id of the very first message.
        start = await _published_since(ledger, topic, wall_ms - 1000 * subscribe.start_message_rollback_duration_sec)
    # Cursors take the position before the first entry to deliver.
    before = start if start is None or start in (EARLIEST, LATEST) else ledger.previous_position(start)
    if before is None:
        before = EARLIEST if subscribe.initialPosition == pb.CommandSubscribe.Earliest else LATEST
    if subscribe.durable:
        properties = [(pair.key, pair.value) for pair in subscribe.subscription_properties]
        return await open_durable(ledger, subscribe.subscription, before, properties)
    try:
        return ledger.new_reader_cursor(before)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"subscription {subscribe.subscription!r}: {error}") from error


async def open_durable(
    ledger: ManagedLedger,
    name: str,
    before: Position | Literal["latest", "earliest"],
    properties: Pairs = (),
) -> Cursor:
    """A durable cursor, made behind `before` if it is new. ServiceNotReadyError."""
    try:
        return await ledger.open_cursor(name, initial=before, properties=properties)
    except (ManagedLedgerError, CursorError) as error:
        raise ServiceNotReadyError(f"subscription {name!r}: {error}") from error


async def delete_cursor(ledger: ManagedLedger, subscription: Subscription) -> None:
    """Delete the cursor of a subscription. Raises ServiceNotReadyError, after which the outcome is unknown."""
    if not subscription.durable:
        ledger.drop_reader_cursor(subscription.cursor)
        return
    try:
        await ledger.delete_cursor(subscription.name)
    except NoSuchCursorError:
        pass  # another UNSUBSCRIBE was faster
    except (ManagedLedgerError, CursorError) as error:
        raise ServiceNotReadyError(f"subscription {subscription.name!r}: {error}") from error


async def _published_since(ledger: ManagedLedger, topic: str, since: int) -> Position:
    try:
        return await first_published_at(ledger, since)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"{topic}: {error}") from error


def position_before(ledger: ManagedLedger, position: Position) -> Position | Literal["latest", "earliest"]:
    """Return the position to give a cursor so that the entry at `position` is its next."""
    if position > ledger.last_confirmed:
        return "latest"
    if position <= ledger.first_position():
        return "earliest"
    return ledger.previous_position(position)


def start_position(subscribe: pb.CommandSubscribe) -> Position | None:
    """Return the position that a SUBSCRIBE with start_message_id names as next, or None if it names none.

    Real ids are returned unchanged: the start entry itself is delivered, and the client drops what it did not ask
    for."""
    if not subscribe.HasField("start_message_id"):
        return None
    start = subscribe.start_message_id
    return position_of(start)
