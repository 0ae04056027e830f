"""Ledger metadata for tasks that read from bookies, asked of the brokers. Blocking; decisions are in stored.py."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from quire.metadata.ledger_metadata import LedgerState
from quire.spark.errors import OptionError
from quire.spark.options.parse import Options
from quire.spark.planning.logs import PartitionLog
from quire.spark.planning.stored import StoredLedger, choose, is_loopback, stored_ledgers, wanted_ledgers
from quire.spark.planning.tasks import TopicRange

_log = logging.getLogger(__name__)

LEDGERS_MAX = 10_000
"""Closed ledgers whose metadata are kept between two plans ..."""
KEPT_S = 300.0
"""... and for how long: repair moves their entries to other bookies."""


class AsksMetadata(Protocol):
    """The part of the REST client that is used here."""

    def many_internal_stats(self, topics: Sequence[str], *, metadata: bool = False) -> list[dict[str, Any] | None]: ...


class Fragments:
    """Metadata of the ledgers of a query, added to its tasks."""

    def __init__(self, options: Options, admin: AsksMetadata) -> None:
        self._options = options
        self._admin = admin
        self._closed: dict[int, StoredLedger] = {}
        """Ledgers that are closed, by id: ids are unique in a cluster, and only their bookies may change."""
        self._closed_since = time.monotonic()
        self._noted: set[str] = set()

    def attach(self, tasks: Sequence[TopicRange], logs: Mapping[str, PartitionLog]) -> list[TopicRange]:
        """Return the tasks with the ledgers that each reads from bookies.

        Raises OptionError: `readVia=bookies`, and a ledger cannot be read from bookies. Raises
        SourceUnavailableError."""
        read_via = self._options.read_via
        tails = {name: log.ledgers[-1].ledger_id if log.ledgers else -1 for name, log in logs.items()}
        wanted: dict[str, set[int]] = {}
        for task in tasks:
            tail = tails.get(task.partition, -1)
            ids = wanted_ledgers((*task.earlier, *task.ranges), tail, read_via)
            wanted.setdefault(task.partition, set()).update(ids)
        known = self._known(wanted)
        made = []
        for task in tasks:
            tail = tails.get(task.partition, -1)
            chosen = choose(
                (*task.earlier, *task.ranges), known[task.partition], tail=tail, read_via=read_via, local=self._is_local
            )
            if chosen.refused and read_via == "bookies":
                raise OptionError("readVia", "bookies", f"{chosen.refused[0]}: give broker, or leave it out")
            for reason in chosen.refused:
                if reason not in self._noted:
                    self._noted.add(reason)
                    _log.warning("entries are read through the brokers, not from bookies: %s", reason)
            made.append(replace(task, stored=chosen.ledgers) if chosen.ledgers else task)
        return made

    @property
    def _is_local(self) -> bool:
        hosts = self._options.service_url.partition("://")[2].split(",")
        return all(is_loopback(host.rpartition(":")[0]) for host in hosts)

    def _known(self, wanted: Mapping[str, set[int]]) -> dict[str, dict[int, StoredLedger]]:
        """Return metadata by partition; only brokers of partitions with ledgers not known yet are asked."""
        if time.monotonic() - self._closed_since > KEPT_S:
            self._closed.clear()
            self._closed_since = time.monotonic()
        found = {
            name: {each: self._closed[each] for each in ids if each in self._closed} for name, ids in wanted.items()
        }
        missing = [name for name, ids in wanted.items() if len(found[name]) < len(ids)]
        if missing:
            for name, stats in zip(missing, self._admin.many_internal_stats(missing, metadata=True), strict=True):
                found[name] = stored_ledgers(stats or {})
                self._keep(found[name])
        return found

    def _keep(self, ledgers: Mapping[int, StoredLedger]) -> None:
        self._closed |= {each.ledger_id: each for each in ledgers.values() if each.metadata.state is LedgerState.CLOSED}
        while len(self._closed) > LEDGERS_MAX:
            del self._closed[next(iter(self._closed))]
