"""Check that a topic, and Spark's settings, keep the promise of exactlyOnce; if not, the error has the remedy."""

from __future__ import annotations

import os
import time
from typing import Protocol
from urllib.parse import unquote, urlsplit

from quire.spark.admin import Admin, AdminRefusedError
from quire.spark.errors import SinkError
from quire.spark.sink.attempts import ADAPTIVE_STATELESS, Attempt

INACTIVITY = "brokerDeduplicationProducerInactivityTimeoutMinutes"
INACTIVITY_DEFAULT_MIN = 360
"""Pulsar's default, taken where the settings of the broker cannot be read."""


class Lookup(Protocol):
    """Questions to the brokers' REST interface; `Admin`, or a test's."""

    def deduplication(self, topic: str) -> bool: ...

    def runtime_configuration(self) -> dict[str, str]: ...


def check_settings(attempt: Attempt) -> None:
    """Check what Spark says of a streaming task. Raises SinkError."""
    if not attempt.query_id or attempt.batch_id < 0:
        raise SinkError(
            "exactlyOnce needs the ids of query and batch, which this version of Spark does not give to its tasks: use"
            " foreachBatch, and a batch write with the options txnAppId and txnVersion"
        )
    if attempt.adaptive:
        raise SinkError(
            "exactlyOnce needs the same tasks whenever a batch is repeated, and Spark may choose another number: set"
            f" spark.conf.set({ADAPTIVE_STATELESS!r}, 'false') before the query is started"
        )


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


def pending_since(checkpoint: str) -> int:
    """Return when the last batch of a checkpoint was begun, in ms since 1970; 0: unknown.

    Only a folder of this machine can be looked at; Spark's planner runs next to the driver."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return 0
    offsets = os.path.join(unquote(parts.path) if parts.scheme else checkpoint, "offsets")
    try:
        batches = [int(name) for name in os.listdir(offsets) if name.isdigit()]
        return int(os.stat(os.path.join(offsets, str(max(batches)))).st_mtime * 1000) if batches else 0
    except OSError:
        return 0


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
