"""What a lookup is answered, and why (pure). The table of docs/architecture.md#who-serves-a-topic.

Source: reference names LookupTopic, NamespaceService.findBrokerServiceUrl of the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Connect:
    """The broker that serves the topic."""

    broker_url: str
    web_url: str
    mine: bool
    """It is this one."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """Ask that broker."""

    broker_url: str
    web_url: str
    authoritative: bool
    """It shall take the bundle if nobody has it."""


class Has(Enum):
    """Whose bundle it is."""

    NOBODY = auto()
    ME = auto()
    ME_BEFORE = auto()
    """The process before this one had it, or this one in a session that is over: the others send clients here."""
    ME_UNLOADING = auto()
    ANOTHER = auto()
    ANOTHER_UNLOADING = auto()
    ANOTHER_GONE = auto()
    """Its node is there, and its broker is not, or does not answer."""


class Leader(Enum):
    """Who decides."""

    ME = auto()
    ANOTHER = auto()
    """Another broker, that answers."""
    NONE = auto()


class Chosen(Enum):
    """Who should have it, as seen from here."""

    ME = auto()
    ANOTHER = auto()
    NOBODY = auto()
    """There is no broker that could."""


class Step(Enum):
    """What to do."""

    CONNECT_TO_ME = auto()
    CONNECT_TO_OWNER = auto()
    WAIT = auto()
    """Until something changes; then decide anew."""
    REDIRECT_TO_LEADER = auto()
    REDIRECT_TO_CHOSEN = auto()
    ACQUIRE = auto()
    """Take it, and decide anew if another was quicker."""
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
    """All but `has` matters only where nobody has it now. `stopping`: this broker takes nothing any more."""
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
