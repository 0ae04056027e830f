"""Check that a topic keeps the promise of exactlyOnce; if not, the error has the remedy."""

from __future__ import annotations

import time
from typing import Protocol

from quire.spark.admin import Admin, AdminRefusedError
from quire.spark.errors import SinkError

INACTIVITY = "brokerDeduplicationProducerInactivityTimeoutMinutes"
INACTIVITY_DEFAULT_MIN = 360
"""Pulsar's default, taken where the settings of the broker cannot be read."""


class Lookup(Protocol):
    """Questions to the brokers' REST interface; `Admin`, or a test's."""

    def deduplication(self, topic: str) -> bool: ...

    def runtime_configuration(self) -> dict[str, str]: ...


def check_topic(lookup: Lookup, topic: str) -> None:
    """Check that the brokers deduplicate what is sent to `topic`. Raises SinkError, SparkSourceError."""
    try:
        enabled = lookup.deduplication(topic)
    except AdminRefusedError as error:
        raise SinkError(
            f"exactlyOnce needs deduplication of {topic}, and whether it is on cannot be read: {error}. Let this role"
            " read the topic's policies"
        ) from error
    if not enabled:
        raise SinkError(
            f"exactlyOnce needs deduplication, which is off for {topic}: set it for the topic or its namespace (POST"
            f" .../deduplicationEnabled or .../deduplication with true), or brokerDeduplicationEnabled in the brokers"
        )


def check_age(lookup: Lookup, pending_ms: int, now_ms: int) -> None:
    """Check that the brokers still have the ids of a batch that was begun at `pending_ms`. Raises SinkError."""
    if now_ms - pending_ms < 60_000:  # the smallest value of the setting
        return
    try:
        configuration = lookup.runtime_configuration()
    except AdminRefusedError:
        configuration = {}
    minutes = int(configuration.get(INACTIVITY, INACTIVITY_DEFAULT_MIN))
    age_min = (now_ms - pending_ms) // 60_000
    if age_min >= minutes:
        raise SinkError(
            f"the batch was begun {age_min} minutes ago, and brokers forget the ids of producers that are gone for"
            f" {minutes} minutes ({INACTIVITY}): rows that it wrote then would be written again. To accept that, start"
            " the query once with exactlyOnce=false; raise the setting for the next time"
        )


class Promise:
    """Checks of one task; each topic once."""

    def __init__(self, lookup: Lookup, pending_ms: int = 0) -> None:
        """`pending_ms`: when the batch was begun; 0: unknown."""
        self._lookup = lookup
        self._pending_ms = pending_ms

    def check(self, topic: str) -> None:
        """Raises SinkError, SparkSourceError."""
        check_topic(self._lookup, topic)
        if self._pending_ms:
            check_age(self._lookup, self._pending_ms, time.time_ns() // 1_000_000)
            self._pending_ms = 0

    def close(self) -> None:
        if isinstance(self._lookup, Admin):
            self._lookup.close()
