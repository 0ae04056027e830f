"""Interface that subscriptions of a non-persistent topic need: their topic."""

from __future__ import annotations

from typing import Protocol, TypeVar

from broker.context import Context
from quire.wire.pulsar.names import TopicName

S = TypeVar("S", contravariant=True)


class SubscriptionHome(Protocol[S]):
    """Topic as used by its subscriptions."""

    context: Context
    name: TopicName
    next_owner: str

    @property
    def published(self) -> None:
        """Return None: nothing is stored."""

    def check_consumers(self, subscription: str, count: int) -> None:
        """Raise ConsumerBusyError if the limit of consumers is reached."""

    def forget(self, subscription: S) -> None:
        """Remove a subscription."""
