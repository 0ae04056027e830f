"""Adds of 1 KB and 64 KB at full speed: entries per second, and CPU of the bookie per entry."""

from __future__ import annotations

from bench.bookie_rows.run import Bound, Row, Run, kind_of
from bench.bookies import Cluster
from bench.procs import cpu_s
from bench.raw_bookie import LEDGERS, flood

LOADS = (("add of 1 KB", 1024, 1000, 0.35, 1.5), ("add of 64 KB", 65536, 100, 0.6, 1.0))
"""Name, bytes, window, and what is expected of Quire's CPU and rate beside Apache's."""


def measure_adds(group: Cluster, first_ledger: int, size: int, window: int, seconds: float) -> tuple[float, float]:
    """Return the entries per second and the microseconds of CPU of one."""
    bookie = group.bookies[0]
    before = cpu_s(bookie.pids)
    filled, took = flood(bookie.port, first_ledger, size, window, seconds)
    count = filled.entries * LEDGERS
    return count / took, (cpu_s(bookie.pids) - before) / count * 1e6


def add_rows(run: Run, seconds: float, warm: float) -> list[Row]:
    rows = []
    with run.clusters("adds", {}, {}) as groups:
        for group in groups:
            if warm:
                run.say(f"adds: warming {kind_of(group)} for {warm:g} s")
                measure_adds(group, 1, 1024, 1000, warm)
        for load, (name, size, window, cpu, rate) in enumerate(LOADS):
            rates = Row(title=f"{name}, rate", unit="entries/s", bound=Bound(limit=rate, better="more"))
            cost = Row(title=f"{name}, CPU", unit="us", bound=Bound(limit=cpu, better="less"))
            for number in range(run.rounds):
                for group in groups:
                    first = 1000 * (number + 1) + 100 * load
                    per_s, us = measure_adds(group, first, size, window, seconds)
                    run.say(f"{name}, round {number + 1}, {kind_of(group)}: {per_s:,.0f}/s, {us:.2f} us")
                    rates.add(kind_of(group), per_s)
                    cost.add(kind_of(group), us)
            rows += [rates, cost]
    return rows
