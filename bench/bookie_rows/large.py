"""A bookie of Quire with many entries in many ledgers: its start, its memory, a round of garbage collection, and the
longest pass of its event loop meanwhile.

The round of garbage collection finds that no ledger is deleted, or that one in a hundred is. A pass of the loop is
measured by the wall clock, and so includes what other processes of the machine take: the least of the rounds counts.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from bench.bookie_rows.run import QUIRE, Bound, Row, Run
from bench.bookies import Bookie, restart
from bench.procs import cpu_s, pss_mb
from bench.raw_bookie import fill
from bench.waiting import poll_until

PAYLOAD = 64
CACHES_MB = {
    "dbStorage_writeCacheMaxSizeMb": 64,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
}
BLOCK_CACHE_MB = 16
CACHES = sum(CACHES_MB.values()) + BLOCK_CACHE_MB
GC_S = 120.0
POLL_S = 0.1
"""Between two questions whether a round has ended; each takes about 1 ms of the bookie's processor."""
IDLE_S = 1.0
IDLE_CPU_S = 0.1
SETTLE_S = 60.0


def _value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the bookie has no metric {name}")
    return float(found[1])


def collect(bookie: Bookie) -> tuple[float, float]:
    """Run one round of garbage collection; return its seconds, and those of the bookie's processor meanwhile."""
    name = 'bookie_THREAD_RUNTIME_sum{success="true"}'
    before = _exact(bookie.get("/metrics"), name)
    begun = cpu_s(bookie.pids)
    bookie.put("/api/v1/bookie/gc", {"forceMajor": False, "forceMinor": False})

    def done() -> bool:
        return '"false"' in bookie.get("/api/v1/bookie/gc")

    if not poll_until(done, GC_S, poll_s=POLL_S):
        raise RuntimeError(f"a round of garbage collection takes more than {GC_S:g} s")
    used = cpu_s(bookie.pids) - begun
    return (_exact(bookie.get("/metrics"), name) - before) / 1000, used


def settle(bookie: Bookie) -> None:
    """Wait until the bookie is idle: after a start RocksDB merges files, which is not part of a round."""
    used = cpu_s(bookie.pids)

    def is_idle() -> bool:
        nonlocal used
        before, used = used, cpu_s(bookie.pids)
        return used - before < IDLE_CPU_S

    time.sleep(IDLE_S)
    if not poll_until(is_idle, SETTLE_S, poll_s=IDLE_S):
        raise RuntimeError(f"the bookie is not idle {SETTLE_S:g} s after its start")


def _exact(text: str, sample: str) -> float:
    for line in text.splitlines():
        if line.startswith(sample + " "):
            return float(line.rpartition(" ")[2])
    raise RuntimeError(f"the bookie has no {sample}")


def large_rows(run: Run, entries: int, ledgers: int) -> list[Row]:
    of = f"{entries:,} entries in {ledgers:,} ledgers"
    start = Row(title=f"start, {of}", unit="s", bound=Bound(limit=5, better="less", alone=True))
    start_cpu = Row(title="  CPU of the start", unit="s", bound=Bound(limit=5, better="less", alone=True))
    memory = Row(
        title=f"  PSS (caches of {CACHES} MB + 120)",
        unit="MB",
        bound=Bound(limit=CACHES + 120, better="less", alone=True),
    )
    none = Row(title="  round of GC, nothing deleted", unit="s", bound=Bound(limit=1, better="less", alone=True))
    some = Row(title="  round of GC, 1 % deleted", unit="s", bound=Bound(limit=1, better="less", alone=True))
    none_cpu = Row(title="  CPU of it", unit="s", bound=Bound(limit=1, better="less", alone=True))
    some_cpu = Row(title="  CPU of it", unit="s", bound=Bound(limit=1, better="less", alone=True))
    longest = Row(title="  longest pass of the loop", unit="ms", bound=Bound(limit=10, better="less", alone=True))
    conf: dict[str, object] = {
        **CACHES_MB,
        "dbStorage_rocksDB_blockCacheSize": BLOCK_CACHE_MB << 20,
        "gcWaitTime": 3_600_000,
    }
    with run.clusters("large", conf, None) as (group,):
        begun = time.perf_counter()
        fill(group.bookies[0].port, 1, ledgers, entries // ledgers, PAYLOAD)
        run.say(f"large: {of} written in {time.perf_counter() - begun:.1f} s")
        run.create_metadata(group, range(1, ledgers + 1 + ledgers // 50))  # some ids have no entries yet
        run.say("large: metadata written")
        for number in range(run.rounds):
            first = ledgers + 1 + number * (ledgers // 100)
            fill(group.bookies[0].port, 2 * ledgers + first, max(ledgers // 100, 1), 10, PAYLOAD)  # without metadata
            group.bookies[0].stop()
            begun = time.perf_counter()
            bookie = restart(group, 0)
            start.add(QUIRE, time.perf_counter() - begun)
            start_cpu.add(QUIRE, cpu_s(bookie.pids))
            passes = [_value(bookie.get("/metrics"), "quire_event_loop_longest_pass_ms")]
            settle(bookie)
            for wall, cpu in ((some, some_cpu), (none, none_cpu)):
                taken, used = collect(bookie)
                wall.add(QUIRE, taken)
                cpu.add(QUIRE, used)
            passes.append(_value(bookie.get("/metrics"), "quire_event_loop_longest_pass_ms"))
            longest.add(QUIRE, max(passes))
            memory.add(QUIRE, pss_mb(bookie.pids))
            run.say(
                f"large, round {number + 1}: start {start.found[QUIRE][-1]:.2f} s, GC {none.found[QUIRE][-1]:.2f} s "
                f"and {some.found[QUIRE][-1]:.2f} s, longest pass {longest.found[QUIRE][-1]:.1f} ms"
            )
        run.say(f"large: {_size(bookie.folder) / 1e6:,.0f} MB on disk")
    longest.found[QUIRE] = [min(longest.found[QUIRE])]
    return [start, start_cpu, memory, none, none_cpu, some, some_cpu, longest]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
