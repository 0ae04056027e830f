"""Class of a subscription, by the type that a SUBSCRIBE asks for."""

from __future__ import annotations

from broker.dispatch.compacted import CompactedSubscription
from broker.dispatch.ports import Host
from broker.dispatch.shared_subscription import KeySharedSubscription, SharedSubscription
from broker.dispatch.single_active import SingleActiveSubscription
from broker.dispatch.subscription import Subscription
from broker.errors import ConsumerBusyError, ServiceNotReadyError
from cursors.cursor import Cursor
from quire.wire.pulsar import PulsarApi_pb2 as pb


def make_subscription(
    topic: Host[Subscription], name: str, cursor: Cursor, subscribe: pb.CommandSubscribe
) -> Subscription:
    """Return a subscription of the type that SUBSCRIBE asks for, over an existing cursor."""
    kind = subscribe.subType
    if kind == pb.CommandSubscribe.Shared:
        return SharedSubscription(topic, name, cursor, kind, subscribe.durable)
    if kind == pb.CommandSubscribe.Key_Shared:
        return KeySharedSubscription(topic, name, cursor, kind, subscribe.durable)
    if subscribe.read_compacted:
        return CompactedSubscription(topic, name, cursor, subscribe)
    return SingleActiveSubscription(topic, name, cursor, kind, subscribe.durable)


def serves(subscription: Subscription, subscribe: pb.CommandSubscribe) -> bool:
    """Return whether the subscription is what SUBSCRIBE asks for."""
    return subscription.kind == subscribe.subType and subscription.serves_compacted >= subscribe.read_compacted


def stop_for_another_kind(found: Subscription) -> None:
    """Stop a subscription that continues as one of another type. Raises ConsumerBusyError (it has consumers),
    ServiceNotReadyError (it is being moved or closed)."""
    if found.consumers:
        raise ConsumerBusyError(f"subscription {found.name!r} has consumers of another type")
    if found.stopped or found.seeking:
        raise ServiceNotReadyError("Subscription is fenced")
    found.stop()
