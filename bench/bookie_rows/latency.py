"""Latency of adds at a fixed rate: 99 % of them, while the bookie does nothing else, and while it flushes, compacts,
is read from its start by a reader that meets the disk, and scrubs. The original has no scrub that can be asked for.

Adds are sent when they are due, whether or not the earlier ones are answered, and times count from then.

The first rows are the disk's own: bare syncs beside a bare reader and a bare writer (device.py). Where these are slower
than twice the quiet ones, the disk leaves no room for the bound of the rows of the bookies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.bookie_rows.device import LOADS, measure_syncs
from bench.bookie_rows.run import APACHE, QUIRE, Bound, Row, Run, beside, kind_of, p99
from bench.bookies import Bookie, Cluster
from bench.procs import read_bytes
from bench.raw_bookie import LEDGERS, Filled, flood, paced

SIZE = 1024
PER_S = 1000.0
BIG = 65536
FLUSHED_MB = 96
"""Less than what makes a bookie flush before its interval ends."""
DRAINED_MB = 512
COMPACTED_MB = 256
FLUSH_S = 3.0
CONF: dict[str, object] = {
    "flushInterval": int(FLUSH_S * 1000),
    "gcWaitTime": 3_600_000,
    "logSizeLimit": 64 << 20,
    "majorCompactionThreshold": 0.8,
    "isThrottleByBytes": "true",
    "compactionRateByBytes": 30_000_000,
}
PHASES = QUIET, FLUSH, DRAIN, COMPACTION, SCRUB = "quiet", "flush", "cold drain", "compaction", "scrub"
SCRUBBED_PER_S = 10_000
"""Entries; 60 by default."""
RESTED_PER_S = 200
"""The same, between the measurements: a scrub cannot be stopped."""
_SCRUB = "/api/v1/bookie/scrub"


class _Ledgers:
    """Blocks of LEDGERS ids that nothing has used."""

    def __init__(self) -> None:
        self._next = 1

    def take(self) -> int:
        first, self._next = self._next, self._next + LEDGERS
        return first


class _Phases:
    """Loads beside which the adds of one bookie are measured."""

    def __init__(self, run: Run, group: Cluster, seconds: float) -> None:
        self._run = run
        self._group = group
        self._bookie = group.bookies[0]
        self._seconds = seconds
        self._ledgers = _Ledgers()

    def prepare(self) -> None:
        """Write what is drained, and warm up."""
        self._drained = self._fill(DRAINED_MB, SIZE)
        self._adds()
        time.sleep(FLUSH_S + 1)

    def measure(self, phase: str) -> float:
        if phase == COMPACTION:
            return self._while_compacting()
        if phase == DRAIN:
            with _draining(self._bookie, self._drained):
                return self._adds()
        if phase == SCRUB:
            return self._while_scrubbing()
        if phase == FLUSH:
            self._fill(FLUSHED_MB, BIG)
        return self._adds()

    def _adds(self) -> float:
        first = self._ledgers.take()
        self._run.create_metadata(self._group, range(first, first + LEDGERS))
        return p99(paced(self._bookie.port, first, SIZE, PER_S, self._seconds))

    def _fill(self, megabytes: int, size: int, kept: int = LEDGERS) -> Filled:
        """Write to new ledgers, of which so many have metadata."""
        first = self._ledgers.take()
        self._run.create_metadata(self._group, range(first, first + kept))
        per_ledger = (megabytes << 20) // size // LEDGERS
        filled, _ = flood(self._bookie.port, first, size, max(20, (4 << 20) // size), entries_max=per_ledger)
        return filled

    def _while_compacting(self) -> float:
        self._fill(COMPACTED_MB, BIG, kept=LEDGERS // 2)
        time.sleep(FLUSH_S + 2)
        self._bookie.put("/api/v1/bookie/gc", {"forceMajor": True, "forceMinor": False})
        return self._adds()

    def _while_scrubbing(self) -> float:
        self._bookie.put(_SCRUB, {"begin": True, "entriesPerSecond": SCRUBBED_PER_S})
        before = self._scrub()["rounds"]
        read_before = read_bytes(self._bookie.pids)
        try:
            found = self._adds()
            after = self._scrub()
            if not after["running"] and after["rounds"] == before:
                raise RuntimeError(f"there was no scrub: {after['lastFailure']}")
            read = read_bytes(self._bookie.pids) - read_before
            if not read:
                raise RuntimeError("the scrub has read nothing")
            # It looks through the logs for entries without rows before it verifies entries.
            self._run.say(
                f"scrub: {read >> 20:,} MB read; since its start {after['entriesRead']:,} entries verified, "
                f"{after['damagedEntries']} of them damaged"
            )
        finally:
            self._bookie.put(_SCRUB, {"entriesPerSecond": RESTED_PER_S})
        return found

    def _scrub(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._bookie.get(_SCRUB))
        return report


@contextmanager
def _draining(bookie: Bookie, filled: Filled) -> Iterator[None]:
    """Read everything again and again in another process, each time from the disk."""
    imports = "from bench.bookie_rows.drain import drain_forever; from bench.raw_bookie import Filled"
    program = f"{imports}; drain_forever({str(bookie.folder)!r}, {bookie.port}, {filled!r})"
    with beside(program, "drain"):
        yield


def _device_rows(run: Run, seconds: float) -> list[Row]:
    """Measure the disk alone; its figures are in Quire's column."""
    no_bound, twice = Bound(limit=0, better="less", alone=True), Bound(limit=2.0, better="less", alone=True)
    rows = {load: Row(title=f"bare sync p99, {load}", unit="ms", bound=no_bound) for load in LOADS}
    times = {load: Row(title=f"bare sync p99, {load} / quiet", unit="x", bound=twice) for load in LOADS[1:]}
    for number in range(run.rounds):
        for load in LOADS:
            found = measure_syncs(run.folder, load, PER_S, seconds)
            rows[load].add(QUIRE, found)
            run.say(f"bare sync p99, round {number + 1}, {load}: {found:.1f} ms")
            if load in times:
                times[load].add(QUIRE, found / rows[LOADS[0]].found[QUIRE][-1])
    return [*rows.values(), *times.values()]


def latency_rows(run: Run, seconds: float) -> list[Row]:
    device = _device_rows(run, seconds)
    bounds = {phase: Bound(limit=1.0, better="less") for phase in PHASES}
    rows = {phase: Row(title=f"add p99, {phase}", unit="ms", bound=bounds[phase]) for phase in PHASES}
    times = {
        phase: Row(title=f"add p99 while {phase} / quiet", unit="x", bound=Bound(limit=2.0, better="less", alone=True))
        for phase in PHASES[1:]
    }
    with run.clusters("latency", CONF, CONF) as groups:
        phases = {kind_of(group): _Phases(run, group, seconds) for group in groups}
        for kind, each in phases.items():
            run.say(f"latency: preparing {kind}")
            each.prepare()
        for number in range(run.rounds):
            for phase in PHASES:
                for kind, each in phases.items():
                    if phase == SCRUB and kind == APACHE:
                        continue
                    found = each.measure(phase)
                    rows[phase].add(kind, found)
                    run.say(f"add p99, round {number + 1}, {phase}, {kind}: {found:.1f} ms")
                    if phase != QUIET:
                        times[phase].add(kind, found / rows[QUIET].found[kind][-1])
    return [*device, *rows.values(), *times.values()]
