"""Counts of a subscription, of all consumers that it had since it was loaded."""

from __future__ import annotations

from typing import Final


class Counts:
    """Counts beside those of messages, and times of the event loop of the last FLOW, delivery and ACK (0.0: never)."""

    __slots__ = ("acked", "acked_at", "bytes_out", "consumed_at", "flowed_at", "redelivered")

    def __init__(self) -> None:
        self.bytes_out = self.redelivered = self.acked = 0
        self.flowed_at = self.consumed_at = self.acked_at = 0.0


UNUSED: Final = Counts()
"""The counts of all subscriptions that had no consumer: most of a broker's are idle, and an object each is memory."""


def used(counts: Counts) -> Counts:
    """Return counts to which something may be added."""
    return Counts() if counts is UNUSED else counts
