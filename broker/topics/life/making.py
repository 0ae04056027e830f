"""Subscriptions of a topic that are being created. A second request for one of them waits for the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio


class Maker(Protocol):
    """Topic whose subscriptions are created."""

    creating: dict[str, trio.Event] | None
    """Subscriptions being created; None: there are none."""


def being_made(topic: Maker, name: str) -> trio.Event | None:
    """Return what is set when a subscription that is being created is there, or cannot be; None: it is not."""
    return None if topic.creating is None else topic.creating.get(name)


@contextmanager
def making(topic: Maker, name: str) -> Iterator[None]:
    """Have others wait that want to create the subscription."""
    if topic.creating is None:
        topic.creating = {}
    done = topic.creating[name] = trio.Event()
    try:
        yield
    finally:
        del topic.creating[name]
        topic.creating = topic.creating or None
        done.set()
