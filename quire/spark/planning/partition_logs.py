"""Which partitions a query reads, and their logs as the brokers told them last. Blocking."""

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
"""A broker's answer taken while a ledger rolled does not fit together for a moment."""
FRESH_S = 1.0
"""How old logs may be that ranges are planned from."""


class PartitionLogs:
    """Filled by `refresh`; all from one round of questions."""

    def __init__(self, options: Options, admin: Admin, cluster: Cluster) -> None:
        self._options = options
        self._admin = admin
        self._cluster = cluster
        self._names: list[str] = []
        self._names_at = -math.inf
        self._refreshed_at = -math.inf
        self.logs: dict[str, PartitionLog] = {}
        """Of the partitions that exist, by full name."""
        self.marks: dict[str, tuple[int, int]] = {}
        """Mark-delete positions of the query's subscription, as the brokers told them with the logs; those that have it."""

    def refresh(self, also: Iterable[str] = ()) -> None:
        """Ask for the partitions, if it is time, and for the logs of all of them and of `also`, the partitions of an offset.
        TopicMissingError: a topic that is named and that no offset knows does not exist."""
        now = time.monotonic()
        also = set(also)
        if not self._names or now - self._names_at >= self._options.topics_refresh_ms / 1000:
            self._names = self._cluster.ask(self._discover)
            self._names_at = now
        logs, marks = self._ask(sorted({*self._names, *also}))
        known = {partitioned_name(name) for name in (*also, *logs)}
        for name in self._options.topics:
            # One that was there once is data loss, and whoever plans says so.
            if name in self._names and name not in logs and not {name, partitioned_name(name)} & (known | also):
                raise TopicMissingError(
                    f"topic {name} does not exist: make it, or publish to it, and start the query then"
                )
        self.logs, self.marks = logs, marks
        self._refreshed_at = time.monotonic()

    def covers(self, end: Offsets) -> bool:
        """Whether the logs are new enough to plan up to `end`."""
        if time.monotonic() - self._refreshed_at > FRESH_S:
            return False
        return all((log := self.logs.get(name)) is not None and place <= log.end() for name, place in end.items())

    def ends(self) -> Offsets:
        """Behind the last confirmed entry of each."""
        return Offsets({name: log.end() for name, log in self.logs.items()})

    def places_at(self, timestamp_ms: int) -> dict[str, Place]:
        """The first entry of each that was published then or later, or where it will stand."""
        found = {name: self._admin.message_id_at(name, timestamp_ms) for name in self.logs}
        return {name: Place(at.ledger_id, max(at.entry_id, 0)) for name, at in found.items()}

    def _ask(self, names: Sequence[str]) -> tuple[dict[str, PartitionLog], dict[str, tuple[int, int]]]:
        """Logs and mark-delete positions of those that exist."""
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
        """Full names of what is read, partitions one by one."""
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
                names.append(topic)  # its log will not be found, and whether that is an error depends on the query
        return names


def _mark_delete(stats: Mapping[str, object], subscription: str) -> tuple[int, int] | None:
    """Where a subscription stands, as internalStats tell it; None: there is none."""
    cursors = stats.get("cursors")
    cursor = cursors.get(subscription) if isinstance(cursors, Mapping) and subscription else None
    if not isinstance(cursor, Mapping):
        return None
    ledger_text, _, entry_text = str(cursor.get("markDeletePosition", "")).partition(":")
    try:
        return int(ledger_text), int(entry_text)
    except ValueError:
        return None
