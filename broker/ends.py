"""Ends of producers and consumers: one table each of states, of what ends them, and of what is then to be done.

Why this is hard: a client, its connection, the topic and a failed append can end the same producer in any order, and
several of them do. Each must see its part done once: the name free for the next, the id forgotten by the connection,
the client told, receipts of what is on its way still sent. So a state is left once, and what is to be done is decided
here; the topic does it (`Topic.end_producer`), for a consumer its subscription (`Subscription.end_consumer`).

    OPEN      it publishes, or is dispatched to
    CLOSING   it takes nothing new. A producer: receipts of what is on its way follow. A consumer: what it held is still
              its own.
    GONE      nothing is sent to it, nothing is kept for it
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, Flag, auto
from typing import Final


class Life(Enum):
    """A state."""

    OPEN = auto()
    CLOSING = auto()
    GONE = auto()


class End(Enum):
    """An event that ends a producer or a consumer."""

    CLIENT = auto()
    """Its client closes it."""
    FAILED = auto()
    """An append of its topic failed: its client is told behind the errors, connects it again, and sends again."""
    FENCED = auto()
    """Another producer has taken the topic for itself: its client is told behind the receipts of what is on its
    way."""
    BLOCKED = auto()
    """The backlog of the topic is above its quota: its client is told behind the receipts, and refused when it
    returns."""
    FORBIDDEN = auto()
    """The role of its connection has lost the permission: its client is told behind the receipts of what is on its way,
    and refused when it returns."""
    UNLOADED = auto()
    """The topic is closed: its client is told behind the receipts, as what it has no receipt for it sends again
    elsewhere."""
    CUT = auto()
    """Its client is told now."""
    LOST = auto()
    """Its connection has ended, another has its place, or (a consumer) everything else of its end is done."""


class Do(Flag):
    """Steps to be taken, in this order."""

    NOTHING = 0
    FORGET = auto()
    """The connection forgets its id; what the client still sends to it is ignored."""
    TELL = auto()
    """CLOSE_PRODUCER, CLOSE_CONSUMER."""
    RELEASE = auto()
    """The topic forgets a producer, whose name is free; the subscription a consumer, and what it held goes to
    others."""
    DRAIN = auto()
    """It is CUT when everything that it sent is answered; what fails until then is not told."""


Table = Mapping[tuple[Life, End], tuple[Life, Do]]

PRODUCER: Final[Table] = {
    (Life.OPEN, End.CLIENT): (Life.CLOSING, Do.FORGET | Do.RELEASE),
    (Life.OPEN, End.FAILED): (Life.CLOSING, Do.FORGET | Do.RELEASE),
    (Life.OPEN, End.FENCED): (Life.CLOSING, Do.FORGET | Do.RELEASE | Do.DRAIN),
    (Life.OPEN, End.BLOCKED): (Life.CLOSING, Do.FORGET | Do.RELEASE | Do.DRAIN),
    (Life.OPEN, End.FORBIDDEN): (Life.CLOSING, Do.FORGET | Do.RELEASE | Do.DRAIN),
    (Life.OPEN, End.UNLOADED): (Life.CLOSING, Do.FORGET | Do.RELEASE | Do.DRAIN),
    (Life.OPEN, End.CUT): (Life.GONE, Do.FORGET | Do.TELL | Do.RELEASE),
    (Life.OPEN, End.LOST): (Life.GONE, Do.RELEASE),
    (Life.CLOSING, End.CUT): (Life.GONE, Do.TELL),
    (Life.CLOSING, End.LOST): (Life.GONE, Do.NOTHING),
}
CONSUMER: Final[Table] = {
    (Life.OPEN, End.CLIENT): (Life.GONE, Do.FORGET | Do.RELEASE),
    (Life.OPEN, End.CUT): (Life.CLOSING, Do.FORGET | Do.TELL),
    (Life.OPEN, End.LOST): (Life.GONE, Do.RELEASE),
    (Life.CLOSING, End.LOST): (Life.GONE, Do.RELEASE),
}
"""Consumers of a subscription that are cut together are all CLOSING before the first is GONE: nothing goes from one to
another."""


def after(table: Table, life: Life, end: End) -> tuple[Life, Do]:
    """Return the next state, and what is to be done. An end that the state has no row for has happened already, or
    comes too late."""
    return table.get((life, end), (life, Do.NOTHING))
