"""Numbers of the topics of this broker and of all brokers, as they are while a page of the console is open.

Rates are those since the last look. A look costs some 10 us for each topic, so the time between two of them is at least
`REST` times the time that one takes: with 100,000 topics a page takes at most a twentieth of a core. Without a look for
`KEPT_S` nothing is kept.

The answers of other brokers may be long in coming. That time is not work, so it does not delay the next look; while a
table is waited for, pages get the one before it; and a broker that did not answer is not asked again for `SILENT_S`.
Brokers ask each other, so the rows of this one are never behind a table that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final

import trio

from broker.admin.requests import AdminCall
from broker.admin.stats.broker_stats import loaded_topics
from broker.console.topics.owned import bundles_of
from broker.console.topics.silent import SilentBundles
from broker.console.topics.table import MEASURED, Curves, Row, TopicTable
from broker.errors import BrokerError, TopicNotFoundError
from broker.ownership.brokers import BROKERS
from broker.ownership.values import decode_report
from broker.slices import run_through
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.topic import Topic
from quire.metadata.errors import MetadataError, NoNodeError
from quire.service.log import get_logger
from quire.world.tasks import for_each

EVERY_S: Final = 2.0
NAMES_EVERY_S: Final = 10.0
REST: Final = 20
KEPT_S: Final = 60.0
PARTS_IN_STEP: Final = 400
"""Topics and subscriptions."""
BROKERS_MAX: Final = 500
ASKERS: Final = 16
"""Brokers that are asked at a time."""
ASK_S: Final = 5.0
"""Deadline of one of them: one that hangs must not keep the table from the pages, which wait 30 s."""
SILENT_S: Final = 10.0
"""Time for which a broker that did not answer is not asked again."""
PART: Final = 2000
"""Rows of another broker in one answer."""
NAMESPACES_MAX: Final = 5000

log = get_logger(__name__)

Counts = tuple[float, float, float, float]


def counts_of(topic: Topic | NonPersistentTopic) -> Counts:
    """Return messages and bytes in, then out, since the topic was loaded."""
    subscriptions = topic.subscriptions.values()
    return (
        topic.messages_in,
        topic.bytes_in,
        sum(each.messages_out for each in subscriptions),
        sum(each.counts.bytes_out for each in subscriptions),
    )


def gauges_of(topic: Topic | NonPersistentTopic) -> Row:
    """Return backlog, storage, producers, consumers, subscriptions. The backlog is that of the slowest subscription, in
    entries."""
    subscriptions = topic.subscriptions.values()
    consumers = sum(len(each.consumers) for each in subscriptions)
    if isinstance(topic, NonPersistentTopic):
        return 0, 0, len(topic.producers), consumers, len(subscriptions)
    backlog = max((each.cursor.backlog() for each in topic.subscriptions.values()), default=0)
    return backlog, topic.ledger.size, len(topic.producers), consumers, len(subscriptions)


class Sampler:
    """Rows of the topics of this broker, of all brokers, and their table."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}
        self._counted_at = -1.0
        self._rows: dict[str, Row] = {}
        self._rows_until = -1.0
        self._names: list[str] = []
        self._names_until = -1.0
        self._table: TopicTable | None = None
        self._table_at = self._table_until = -1.0
        self._curves = Curves()
        self._number = 0
        self._counting = trio.Lock()
        """Held while the rows of this broker are made."""
        self._looking = trio.Lock()
        """Held while the table is made, which waits for others."""
        self._silent: dict[str, tuple[float, Collection[str]]] = {}
        """Times until which brokers are not asked, and their bundles, by URL."""
        self._registered: dict[str, Collection[str]] = {}
        """Other brokers by URL, with the bundles of their reports, as of the last look."""
        self._used_at = -1.0

    @property
    def curves(self) -> Curves:
        """Return the curves of topics with traffic."""
        return self._curves

    async def rows(self, call: AdminCall) -> Mapping[str, Row]:
        """Return the rows of this broker's topics by name: rates, then gauges."""
        async with self._counting:
            return await self._own_rows(call)

    async def _own_rows(self, call: AdminCall) -> Mapping[str, Row]:
        start = trio.current_time()
        if start < self._rows_until:
            return self._rows
        fresh = self._counted_at >= 0 and start - self._counted_at < KEPT_S
        seconds, before = max(start - self._counted_at, 1e-3), self._counts if fresh else {}
        counts: dict[str, Counts] = {}
        rows: dict[str, Row] = {}
        left = PARTS_IN_STEP
        for topic in list(loaded_topics(call)):
            name = topic.name.full
            now = counts_of(topic)
            counts[name] = now
            known = before.get(name)
            if known is None:
                rates = topic.context.measures.of(topic)
                speed: Row = (rates.messages_in, rates.bytes_in, rates.messages_out, rates.bytes_out)
            else:
                speed = tuple(max(0.0, (new - old) / seconds) for new, old in zip(now, known, strict=True))
            rows[name] = (*speed, *gauges_of(topic))
            left -= 1 + len(topic.subscriptions)
            if left <= 0:
                left = PARTS_IN_STEP
                await trio.lowlevel.checkpoint()
        self._counts, self._counted_at, self._rows = counts, start, rows
        self._rows_until = _until(start)
        return rows

    async def table(self, call: AdminCall) -> TopicTable:
        """Return the table of all topics of the cluster, of the last seconds. Raises BrokerError."""
        if self._table is not None and self._looking.locked() and trio.current_time() - self._table_at < KEPT_S:
            return self._table
        async with self._looking:
            start = trio.current_time()
            if self._table is not None and start < self._table_until:
                return self._table
            if start - self._used_at > KEPT_S:
                self._curves = Curves()
            elsewhere, silent = await self._elsewhere(call)
            waited = trio.current_time() - start
            measured = [await self.rows(call), *elsewhere]
            self._number += 1
            table = TopicTable(self._number, call.cluster.wall_ms())
            await run_through(table.fill(await self._all_names(call), measured, silent))
            await run_through(self._curves.add(table))
            self._table, self._used_at = table, trio.current_time()
            self._table_at, self._table_until = start, _until(start + waited)
            return table

    async def _all_names(self, call: AdminCall) -> list[str]:
        start = trio.current_time()
        if start < self._names_until:
            return self._names
        names: list[str] = []
        namespaces = call.cluster.namespaces
        for tenant in await namespaces.tenants():
            for namespace in (await namespaces.names(tenant))[:NAMESPACES_MAX]:
                try:
                    names += await call.administration.topics_of_namespace(namespace)
                except TopicNotFoundError:
                    continue  # deleted in the meantime
        self._names = names
        took = trio.current_time() - start
        self._names_until = start + max(NAMES_EVERY_S, REST * took)
        return names

    async def _elsewhere(self, call: AdminCall) -> tuple[list[dict[str, Row]], SilentBundles]:
        """Return the rows of other brokers, and the bundles of those that did not answer."""
        cluster, found, others = call.cluster, list[dict[str, Row]](), call.cluster.others
        if others is None or not cluster.broker_id:
            return found, SilentBundles(())
        now = trio.current_time()
        self._silent = {url: known for url, known in self._silent.items() if now < known[0]}
        fresh: dict[str, Collection[str]] = {}

        async def ask(other: tuple[str, Collection[str]]) -> None:
            url, bundles = other
            rows: dict[str, Row] = {}
            place: int | None = 0
            try:
                with trio.fail_after(ASK_S):
                    while place is not None:
                        part = await others.call(url, "GET", f"/console/api/loaded-topics?from={place}&limit={PART}")
                        rows.update(_checked(part))
                        place = part["next"]
            except (BrokerError, ValueError, trio.TooSlowError) as error:
                reason = str(error) or f"no answer within {ASK_S:g} s"
                log.warning("topics of a broker unknown", broker=url, reason=reason)
                fresh[url] = bundles
            found.append(rows)

        try:
            self._registered = dict(await _others(call, others.url_of))
        except (MetadataError, BrokerError) as error:
            log.warning("other brokers unknown: those of the last look are asked", reason=str(error))
        asked = [other for other in self._registered.items() if other[0] not in self._silent]
        await for_each(asked, ask, at_once=ASKERS, name="topics of others")
        if fresh:
            owned = await _owned(call, fresh, others.url_of)
            until = trio.current_time() + SILENT_S
            self._silent |= {url: (until, {*told, *owned.get(url, ())}) for url, told in fresh.items()}
        # One whose session has ended since is not registered, and others may have its bundles.
        left = (known for url, (_, known) in self._silent.items() if url in self._registered)
        return found, SilentBundles(chain.from_iterable(left))


async def _owned(
    call: AdminCall, silent: Collection[str], url_of: Callable[[Any], str]
) -> Mapping[str, Collection[str]]:
    """Return the bundles of brokers by URL, as their nodes tell it; nothing if the metadata do not answer in time."""
    try:
        with trio.fail_after(ASK_S):
            return await bundles_of(call.cluster.metadata, silent, url_of)
    except (MetadataError, trio.TooSlowError) as error:
        log.warning("bundles of silent brokers unknown", reason=str(error) or f"no answer within {ASK_S:g} s")
        return {}


async def _others(call: AdminCall, url_of: Callable[[Any], str]) -> list[tuple[str, Collection[str]]]:
    """Return the web URLs of the other registered brokers, with the names of their bundles. Raises MetadataError,
    BrokerError."""
    cluster, found = call.cluster, list[tuple[str, Collection[str]]]()
    try:
        names = await cluster.metadata.children(BROKERS)
        for broker_id in names[:BROKERS_MAX]:
            node = None if broker_id == cluster.broker_id else await cluster.metadata.get(f"{BROKERS}/{broker_id}")
            if node is not None:
                report = decode_report(broker_id, node.value)
                found.append((url_of(report.broker), report.bundles))
    except NoNodeError:
        pass
    return found


def _checked(part: object) -> Iterable[tuple[str, Row]]:
    """Return the rows of an answer. Raises ValueError."""
    if not isinstance(part, dict) or not isinstance(part.get("rows"), list) or "next" not in part:
        raise ValueError("its answer has no rows")
    for row in part["rows"]:
        if not isinstance(row, list) or len(row) != 1 + MEASURED:
            raise ValueError("a row of another version")
        try:
            yield str(row[0]), tuple(map(float, row[1:]))
        except TypeError as error:
            raise ValueError("a row of another version") from error


def _until(start: float) -> float:
    return start + max(EVERY_S, REST * (trio.current_time() - start))
