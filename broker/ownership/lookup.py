"""Decision about the answer of a lookup (pure). It follows the table of docs/architecture.md#who-serves-a-topic.

Why this is hard: the registered brokers, the leader, the node of a bundle and whether its owner answers are seen at
different times, and a broker may be dead though its node is there. Two brokers must not both take a bundle because each
believes the other dead, and a client must not be sent in a circle, or to a broker that does not answer.

Source: reference names LookupTopic, NamespaceService.findBrokerServiceUrl of the original.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from broker.ownership.urls import Urls


class Connect(NamedTuple):
    """Answer: connect to this broker."""

    broker_url: str
    web_url: str
    mine: bool
    """True if it is this broker."""
    broker_url_tls: str = ""
    web_url_tls: str = ""


class Redirect(NamedTuple):
    """Answer: ask that broker."""

    broker_url: str
    web_url: str
    authoritative: bool
    """True if that broker is to take the bundle if no broker has it."""
    broker_url_tls: str = ""
    web_url_tls: str = ""


def connect(urls: Urls, *, mine: bool) -> Connect:
    return Connect(urls.broker_url, urls.web_url, mine, urls.broker_url_tls, urls.web_url_tls)


def redirect(urls: Urls, *, authoritative: bool) -> Redirect:
    return Redirect(urls.broker_url, urls.web_url, authoritative, urls.broker_url_tls, urls.web_url_tls)


class Has(Enum):
    """State of a bundle's ownership."""

    NOBODY = auto()
    ME = auto()
    ME_BEFORE = auto()
    """A former process of this broker, or this one in an expired session: the others send clients here."""
    ME_UNLOADING = auto()
    ANOTHER = auto()
    ANOTHER_UNLOADING = auto()
    ANOTHER_GONE = auto()
    """Its node exists, but its broker is gone or does not answer."""


class Leader(Enum):
    """State of the leader, who places bundles."""

    ME = auto()
    ANOTHER = auto()
    """Another broker leads, and answers."""
    NONE = auto()


class Chosen(Enum):
    """Best broker for the bundle, as seen from here."""

    ME = auto()
    ANOTHER = auto()
    NOBODY = auto()
    """No broker can take it."""


class Step(Enum):
    """Next step of a lookup."""

    CONNECT_TO_ME = auto()
    CONNECT_TO_OWNER = auto()
    WAIT = auto()
    """Wait until something changes, then decide again."""
    REDIRECT_TO_LEADER = auto()
    REDIRECT_TO_CHOSEN = auto()
    ACQUIRE = auto()
    """Take the bundle, and decide again if another broker was faster."""
    REFUSE = auto()


_OWNED = {
    Has.ME: Step.CONNECT_TO_ME,
    Has.ANOTHER: Step.CONNECT_TO_OWNER,
    Has.ME_UNLOADING: Step.WAIT,
    Has.ANOTHER_UNLOADING: Step.WAIT,
    Has.ANOTHER_GONE: Step.WAIT,
}


def decide(
    has: Has,
    *,
    authoritative: bool = False,
    leader: Leader = Leader.NONE,
    chosen: Chosen = Chosen.NOBODY,
    stopping: bool = False,
) -> Step:
    """Decide the next step. All but `has` matters only if no broker has the bundle. `stopping`: this broker takes
    nothing more."""
    if has is Has.ME_BEFORE:
        return Step.WAIT if stopping else Step.ACQUIRE
    if has is not Has.NOBODY:
        return _OWNED[has]
    if authoritative and not stopping:
        return Step.ACQUIRE
    if leader is Leader.ANOTHER:
        return Step.REDIRECT_TO_LEADER
    if chosen is Chosen.ANOTHER:
        return Step.REDIRECT_TO_CHOSEN
    if chosen is Chosen.ME and not stopping:
        return Step.ACQUIRE
    return Step.REFUSE
