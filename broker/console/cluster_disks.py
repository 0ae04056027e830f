"""Bookies of a cluster with their disks, from what they publish.

    registrations, cookies      writable, read-only or not registered; directories
    GET_BOOKIE_INFO             bytes of its disks, free and in all; asked by the bookie protocol
    its web port, if it has one (endpoint `httpserver`)
        /api/v1/config/server_config    the keys that decide when it is full
        /metrics                        journal latencies, if it measures them

What a bookie does not publish is absent, never guessed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isnan, nan
from typing import Any, Final, NamedTuple

import trio

from quire.ledger.errors import BookieUnavailableError
from quire.ledger.placement.policy import Cluster
from quire.metadata import bookies, paths
from quire.metadata.errors import MalformedMetadataError, NoNodeError, UnsupportedLayoutError
from quire.metadata.store import MetadataStore

BOOKIES_MAX: Final = 500
"""Bookies that are asked; more are said to be more."""
ASKERS: Final = 8
ASK_S: Final = 5.0
"""Deadline of each question to a bookie."""
KEPT_S: Final = 5.0
"""Seconds for which answers are used again."""
LINES_IN_STEP: Final = 5000
LINES_MAX: Final = 5000
"""Lines about the journal that are read of the metrics of a bookie."""
JOURNAL_LINES: Final = ("bookie_journal_", "quire_bookie_journal_")
THRESHOLD_KEYS: Final = (
    "diskUsageThreshold",
    "diskUsageWarnThreshold",
    "diskUsageLwmThreshold",
    "minUsableSizeForEntryLogCreation",
    "minUsableSizeForHighPriorityWrites",
    "readOnlyModeEnabled",
    "forceReadOnlyBookie",
    "quireDiskReserveMb",
    "journalPreAllocSizeMB",
    "gcWaitTime",
)
"""Keys of a bookie that decide when it takes no entries; those that it has are shown."""
LATENCIES: Final = {
    "bookie_journal_JOURNAL_SYNC": "sync",
    "bookie_journal_JOURNAL_FLUSH_LATENCY": "flush",
    "bookie_journal_JOURNAL_ADD_ENTRY": "add",
    "bookie_journal_JOURNAL_QUEUE_LATENCY": "queue",
}
"""Latencies of the journal, by the name of their metric; in milliseconds by the original's summaries."""
_SAMPLE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')

Fetch = Callable[[str], Awaitable[bytes]]
"""Request a URL; return the body of a 200. Raises OSError."""
AskSpace = Callable[[str], Awaitable[tuple[int, int]]]
"""Ask a bookie for the bytes of its disks, all and free ones. Raises BookieUnavailableError."""
REASON_MAX: Final = 500
"""Characters."""
Facts = Callable[[], Awaitable["BookieFacts"]]


class DiskSpace(NamedTuple):
    """Bytes of a bookie's disks."""

    total: int
    free: int


@dataclass(slots=True, kw_only=True)
class BookieFacts:
    """Known facts about one bookie."""

    bookie_id: str
    state: str
    """writable, read-only or gone: it has a cookie and is not registered."""
    rack: str | None = None
    quarantined: bool = False
    journals: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    web_url: str = ""
    space: DiskSpace | None = None
    answer_ms: float | None = None
    """Time of its answer about its disks."""
    thresholds: dict[str, str] = field(default_factory=dict)
    latencies: dict[str, dict[str, float]] = field(default_factory=dict)
    """Milliseconds by quantile, by latency of the journal."""
    journal: dict[str, float] = field(default_factory=dict)
    """Other figures of the journal: syncs, bytes that wait, the most of them."""
    reason: str = ""
    """Reason why it is read-only, if the bookie says so."""
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON."""
        space = self.space
        return {
            "bookie": self.bookie_id,
            "state": self.state,
            "rack": self.rack,
            "quarantined": self.quarantined,
            "journals": list(self.journals),
            "directories": list(self.directories),
            "webUrl": self.web_url,
            "total": None if space is None else space.total,
            "free": None if space is None else space.free,
            "answerMs": self.answer_ms,
            "thresholds": self.thresholds,
            "latencies": self.latencies,
            "journal": self.journal,
            "reason": self.reason,
            "problems": self.problems,
        }


# --- what bookies say (pure)


def thresholds_in(body: bytes) -> dict[str, str]:
    """Return the keys that decide when a bookie is full, of the answer of server_config. Raises ValueError."""
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("its configuration is no JSON object")
    return {key: str(found[key])[:100] for key in THRESHOLD_KEYS if key in found}


def reason_in(body: bytes) -> str:
    """Return why a bookie is read-only, of its state; empty: it does not say, as one of the original. Raises
    ValueError."""
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("its state is no JSON object")
    return str(found.get("readOnlyReason") or "")[:REASON_MAX]


def journal_in(text: str) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return the latencies of the journal by quantile, and its other figures, of the metrics of a bookie.

    Summaries (label `quantile`) and histograms (`le`, in the unit of the metric) are read; of the label `success` only
    what succeeded counts. Of several journals (`journalIndex`) the slowest counts, and figures are added.
    """
    latencies: dict[str, dict[str, float]] = {}
    by_journal: defaultdict[str, dict[str, float]] = defaultdict(dict)
    buckets: dict[str, list[tuple[float, float]]] = {}
    figures: dict[str, float] = {}
    for name, labels, value in _samples(text):
        if labels.get("success") == "false":
            continue
        base = name.removesuffix("_bucket")
        if base in LATENCIES and "quantile" in labels:
            found = latencies.setdefault(LATENCIES[base], {})
            quantile = f"p{float(labels['quantile']) * 100:g}"
            known = found.get(quantile, nan)
            found[quantile] = value if isnan(known) else max(known, value) if not isnan(value) else known
        elif base in LATENCIES and "le" in labels:
            buckets.setdefault(LATENCIES[base], []).append((float(labels["le"]), value))
        elif name in ("bookie_journal_JOURNAL_SYNC_count", "bookie_journal_JOURNAL_SYNC_total"):
            by_journal["syncs"][labels.get("journalIndex", "")] = value
        elif name == "bookie_journal_JOURNAL_MEMORY_USED":
            by_journal["queuedBytes"][labels.get("journalIndex", "")] = value
        elif name == "bookie_journal_JOURNAL_MEMORY_MAX":
            by_journal["queuedBytesMax"][labels.get("journalIndex", "")] = value
        elif name == "quire_bookie_journal_write_failures":
            figures["writeFailures"] = value
    figures.update({figure: sum(values.values()) for figure, values in by_journal.items()})
    for latency, ends in buckets.items():
        latencies.setdefault(latency, {}).update(_quantiles(sorted(ends)))
    finite = {key: {q: v for q, v in each.items() if abs(v) < float("inf")} for key, each in latencies.items()}
    return {key: each for key, each in finite.items() if each}, figures


def _quantiles(buckets: list[tuple[float, float]]) -> Iterator[tuple[str, float]]:
    """Yield the upper ends of the buckets that have the median and the 99th percentile."""
    total = buckets[-1][1]
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        for upper, count in buckets:
            if total and count >= share * total:
                yield name, upper
                break


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.split("\n"):
        if not line.startswith(JOURNAL_LINES):
            continue
        found = _SAMPLE.fullmatch(line.strip())
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if value == value:  # not NaN, of a summary without samples
            yield found[1], dict(_LABEL.findall(found[2] or "")), value


# --- the shell


class Disks:
    """Bookies of one cluster, asked when they are looked at."""

    def __init__(
        self,
        store: MetadataStore,
        ask_space: AskSpace,
        fetch: Fetch,
        cluster: Callable[[], Cluster],
        root: str,
        own: Mapping[str, Facts] | None = None,
    ) -> None:
        """`own`: facts about bookies in this process, by id, which are not registered."""
        self._store = store
        self._space_of = ask_space
        self._fetch = fetch
        self._cluster = cluster
        self._root = root
        self._own = {} if own is None else own
        self._last: dict[str, Any] | None = None
        self._at = float("-inf")
        self._looking = trio.Lock()

    async def look(self) -> dict[str, Any]:
        """Ask all bookies, unless that was done a moment ago; return the answer as JSON. Raises MetadataError."""
        async with self._looking:
            if self._last is None or trio.current_time() - self._at > KEPT_S:
                found = await self._look()
                self._at, self._last = trio.current_time(), found
            return self._last

    async def states(self) -> dict[str, str]:
        """Return all bookies by id: writable, read-only or gone. Raises MetadataError."""
        root = self._root
        found = dict.fromkeys(await self._children(paths.join(root, "cookies")), "gone")
        found |= dict.fromkeys(self._own, "writable")
        names = [name for name in await self._children(paths.join(root, "available")) if name != bookies.READONLY]
        found |= dict.fromkeys(names, "writable")
        found |= dict.fromkeys(await self._children(f"{root}/available/{bookies.READONLY}"), "read-only")
        for bookie_id, facts in self._own.items():
            found[bookie_id] = (await facts()).state
        return dict(sorted(found.items()))

    async def _look(self) -> dict[str, Any]:
        states = await self.states()
        asked = list(states)[:BOOKIES_MAX]
        cluster = self._cluster()
        found: dict[str, BookieFacts] = {}
        ahead = iter(asked)

        async def ask() -> None:
            for bookie_id in ahead:
                found[bookie_id] = await self._facts(bookie_id, states[bookie_id], cluster)

        async with trio.open_nursery() as nursery:
            for _ in range(min(ASKERS, len(asked))):
                nursery.start_soon(ask, name="disks of bookies")
        return {"bookies": [found[each].as_json() for each in asked], "total": len(states)}

    async def _facts(self, bookie_id: str, state: str, cluster: Cluster) -> BookieFacts:
        if bookie_id in self._own:
            return await self._own[bookie_id]()
        facts = BookieFacts(
            bookie_id=bookie_id,
            state=state,
            rack=cluster.locations.get(bookie_id),
            quarantined=bookie_id in cluster.quarantined,
        )
        try:
            cookie = await bookies.read_cookie(self._store, bookie_id, root=self._root)
            if cookie is not None:
                facts.journals = cookie.value.journal_directories
                facts.directories = cookie.value.ledger_directories
            if state == "gone":
                return facts
            info = await bookies.service_info(self._store, bookie_id, root=self._root)
        except (MalformedMetadataError, UnsupportedLayoutError) as error:
            facts.problems.append(str(error))
            info = None
        await self._tried(facts, "its disks", partial(self._ask_space, facts))
        facts.web_url = "" if info is None else bookies.web_url(info)
        if facts.web_url:
            if state == "read-only":
                await self._tried(facts, "its state", partial(self._ask_state, facts))
            await self._tried(facts, "its configuration", partial(self._ask_config, facts))
            await self._tried(facts, "its metrics", partial(self._ask_metrics, facts))
        return facts

    async def _ask_space(self, facts: BookieFacts) -> None:
        start = trio.current_time()
        facts.space = DiskSpace(*await self._space_of(facts.bookie_id))
        facts.answer_ms = round((trio.current_time() - start) * 1000, 2)

    async def _ask_state(self, facts: BookieFacts) -> None:
        facts.reason = reason_in(await self._fetch(f"{facts.web_url}/api/v1/bookie/state?reason=true"))

    async def _ask_config(self, facts: BookieFacts) -> None:
        facts.thresholds = thresholds_in(await self._fetch(f"{facts.web_url}/api/v1/config/server_config"))

    async def _ask_metrics(self, facts: BookieFacts) -> None:
        text = (await self._fetch(f"{facts.web_url}/metrics")).decode(errors="replace")
        lines, kept = text.split("\n"), list[str]()
        for first in range(0, len(lines), LINES_IN_STEP):
            kept += [line for line in lines[first : first + LINES_IN_STEP] if line.startswith(JOURNAL_LINES)]
            await trio.lowlevel.checkpoint()
        facts.latencies, facts.journal = journal_in("\n".join(kept[:LINES_MAX]))

    async def _tried(self, facts: BookieFacts, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            with trio.fail_after(ASK_S):
                await ask()
        except trio.TooSlowError:
            facts.problems.append(f"{what}: no answer within {ASK_S:g} s")
        except (OSError, ValueError, BookieUnavailableError) as error:
            facts.problems.append(f"{what}: {error}")

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []
