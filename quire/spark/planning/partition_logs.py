"""Partitions that a query reads, and their logs as last reported by the brokers. Blocking."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from quire.client.client import Client
from quire.client.errors import TopicNotFoundError
from quire.spark.admin import Admin, TopicMissingError
from quire.spark.cluster import Cluster
from quire.spark.errors import StatsError
from quire.spark.offsets import Offsets, Place
from quire.spark.options.parse import Options
from quire.spark.planning.logs import PartitionLog
from quire.spark.topics import partition_names, partitioned_name

STATS_TRIES = 20
STATS_PAUSE_S = 0.05
"""Number of attempts: an answer read while a ledger rolls is inconsistent for a moment."""
FRESH_S = 1.0
"""Maximum age of logs for planning ranges."""


class PartitionLogs:
    """Logs of the partitions, filled by `refresh`; all from one round of requests."""

    def __init__(self, options: Options, admin: Admin, cluster: Cluster) -> None:
        self._options = options
        self._admin = admin
        self._cluster = cluster
        self._names: list[str] = []
        self._names_at = -math.inf
        self._refreshed_at = -math.inf
        self.logs: dict[str, PartitionLog] = {}
        """Logs of the existing partitions, by full name."""
        self.marks: dict[str, tuple[int, int]] = {}
        """Mark-delete positions of the query's subscription, reported with the logs; only partitions that have it."""

    def refresh(self, also: Iterable[str] = ()) -> None:
        """Read the partitions, if it is time, and the logs of all of them and of `also`, the partitions of an offset.

        Raises TopicMissingError: a named topic that is in no offset does not exist."""
        now = time.monotonic()
        also = set(also)
        if not self._names or now - self._names_at >= self._options.topics_refresh_ms / 1000:
            self._names = self._cluster.ask(self._discover)
            self._names_at = now
        logs, marks = self._ask(sorted({*self._names, *also}))
        known = {partitioned_name(name) for name in (*also, *logs)}
        for name in self._options.topics:
            # A topic that existed before is data loss, which the planner reports.
            if name in self._names and name not in logs and not {name, partitioned_name(name)} & (known | also):
                raise TopicMissingError(
                    f"topic {name} does not exist: create it or publish to it, then start the query"
                )
        self.logs, self.marks = logs, marks
        self._refreshed_at = time.monotonic()

    def covers(self, end: Offsets) -> bool:
        """Return whether the logs are recent enough to plan up to `end`."""
        if time.monotonic() - self._refreshed_at > FRESH_S:
            return False
        return all((log := self.logs.get(name)) is not None and place <= log.end() for name, place in end.items())

    def ends(self) -> Offsets:
        """Return the place behind the last confirmed entry of each."""
        return Offsets({name: log.end() for name, log in self.logs.items()})

    def places_at(self, times_ms: Mapping[str, int]) -> dict[str, Place]:
        """Return, for each partition, the first entry published at its time or later, or else the place of the next
        one."""
        found = {name: self._admin.message_id_at(name, time_ms) for name, time_ms in times_ms.items()}
        return {name: Place(at.ledger_id, max(at.entry_id, 0)) for name, at in found.items()}

    def _ask(self, names: Sequence[str]) -> tuple[dict[str, PartitionLog], dict[str, tuple[int, int]]]:
        """Read the logs and mark-delete positions of existing partitions."""
        logs: dict[str, PartitionLog] = {}
        marks: dict[str, tuple[int, int]] = {}
        left = list(names)
        for attempt in range(1, STATS_TRIES + 1):
            again = []
            for name, stats in zip(left, self._admin.many_internal_stats(left), strict=True):
                if stats is None:
                    continue
                try:
                    logs[name] = PartitionLog.from_internal_stats(name, stats, settled=attempt == STATS_TRIES)
                except StatsError:
                    if attempt == STATS_TRIES:
                        raise
                    again.append(name)
                    continue
                mark = _mark_delete(stats, self._options.subscription)
                if mark is not None:
                    marks[name] = mark
            left = again
            if not left:
                break
            time.sleep(STATS_PAUSE_S)
        return logs, marks

    async def _discover(self, client: Client) -> list[str]:
        """Return the full names of what is read, partitions one by one."""
        pattern = self._options.topics_pattern
        if pattern is not None:
            topics = pattern.topics(await client.topics(pattern.namespace))
        else:
            topics = list(self._options.topics)
        names = []
        for topic in topics:
            try:
                names += partition_names(topic, await client.partitions(topic))
            except TopicNotFoundError:
                names.append(topic)  # its log will be missing, and the query decides whether that is an error
        return names


def _mark_delete(stats: Mapping[str, object], subscription: str) -> tuple[int, int] | None:
    """Return the mark-delete position of a subscription in internalStats; None: there is none."""
    cursors = stats.get("cursors")
    cursor = cursors.get(subscription) if isinstance(cursors, Mapping) and subscription else None
    if not isinstance(cursor, Mapping):
        return None
    ledger_text, _, entry_text = str(cursor.get("markDeletePosition", "")).partition(":")
    try:
        return int(ledger_text), int(entry_text)
    except ValueError:
        return None
