"""Doors through which rooms of the broker take part in explanations.

A room that keeps messages from consumers or producers (rates, quotas, limits of the broker) has one object with these
methods, given to `Explain.doors`. Its causes and their texts are its own. A method answers from memory, at once, and
costs nothing until it is asked.
"""

from __future__ import annotations

from typing import Protocol

from broker.dispatch.subscription import Subscription
from broker.explain.causes import Reason
from broker.topics.topic import Topic


class ExplainingRoom(Protocol):
    """A room that may be the cause."""

    def why_not_delivered(self, topic: Topic, subscription: Subscription) -> Reason | None:
        """Return why the room keeps messages from the consumers of a subscription; None: it does not."""

    def why_not_published(self, topic: Topic) -> Reason | None:
        """Return why the room makes producers of a topic wait; None: it does not."""
