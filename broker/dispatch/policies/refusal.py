"""Reason for which an entry is delivered to no consumer, as the policies decide it (pure)."""

from __future__ import annotations

from enum import Enum
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C")


class Why(Enum):
    NO_TAKER = "no consumer has permits and room"
    NO_OWNER = "no consumer has declared a range with the hash of its key"
    BUSY = "its consumer has no permits or no room"
    OLDER_WAITS = "an older entry of its key waits"
    HELD = "another consumer holds entries of its key"


class Refusal(NamedTuple, Generic[C]):
    """Answer to why an entry is delivered to no consumer now."""

    why: Why
    consumer: C | None = None
    """The one that has to do something."""
    owner: C | None = None
    """The one that is to have the entry."""
    entries: int = 0
    """Entries of the key that `consumer` holds."""
