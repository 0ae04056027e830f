"""When a topic counts as inactive, and is kept nevertheless (pure).

Source: Pulsar's PersistentTopic (isActive, checkGC, shouldTopicBeRetained).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.life_config import CAUGHT_UP


class Usage(NamedTuple):
    """Use of a topic."""

    clients: int
    """Producers and consumers."""
    subscriptions: int
    has_backlog: bool


def is_active(mode: str, usage: Usage) -> bool:
    """Return whether a topic counts as in use.

    >>> [is_active("delete_when_no_subscriptions", Usage(0, count, False)) for count in (0, 1)]
    [False, True]
    >>> [is_active("delete_when_subscriptions_caught_up", Usage(0, 1, behind)) for behind in (False, True)]
    [False, True]
    """
    if usage.clients:
        return True
    return usage.has_backlog if mode == CAUGHT_UP else usage.subscriptions > 0


def is_retained(retention_minutes: int, idle_s: float) -> bool:
    """Return whether a topic that is inactive is kept for its messages.

    >>> [is_retained(minutes, 90) for minutes in (-1, 0, 1, 2)]
    [True, False, False, True]
    """
    return retention_minutes < 0 or idle_s < 60 * retention_minutes
