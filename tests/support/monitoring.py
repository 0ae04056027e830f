"""Tests with a real Prometheus: short rules, waits for alerts, and the expressions of dashboards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from tests.support.debian import installed
from tests.support.waiting import until
from tools.monitoring.alert_table import ALERTS
from tools.monitoring.alerts import rules_text
from tools.monitoring.panels import Dashboard
from tools.monitoring.prometheus import Prometheus, prometheus, substituted

WINDOW = "8s"
"""Range of the rules in tests, with a scrape each second."""
FIRES_WITHIN_S = 60.0
OF_THE_MACHINE = frozenset(
    (
        "QuireDiskFilling",
        "QuireDiskFull",
        "QuireMemoryNearBound",
        "QuireEventLoopHeld",
        "QuireJournalSyncSlow",
        "QuireStorageWriteSlow",
    )
)
"""Alerts that other runs on the same disk and processors may fire; see tests/cluster/test_machine_alerts.py."""
assert {each.name for each in ALERTS} >= OF_THE_MACHINE


@contextmanager
def scraping(folder: Path, targets: Mapping[str, Sequence[str]]) -> Iterator[Prometheus]:
    """Run a Prometheus with the shipped expressions, short ranges, and no durations."""
    program = installed("prometheus", "prometheus")
    rules = rules_text(ALERTS, window=WINDOW, seconds=0)
    with prometheus(program, folder, targets, rules, interval="1s") as found:
        yield found


async def firing(server: Prometheus) -> set[str]:
    """Return the names of the alerts that fire now."""
    found = await trio.to_thread.run_sync(server.alerts, "firing")
    return {labels["alertname"] for labels in found}


async def firing_by_faults(server: Prometheus) -> set[str]:
    """Return the names of the alerts that fire now, without those of the machine."""
    return await firing(server) - OF_THE_MACHINE


async def fires(server: Prometheus, name: str, within: float = FIRES_WITHIN_S) -> None:
    """Wait until the alert fires."""
    assert name in {alert.name for alert in ALERTS}, name

    async def holds() -> bool:
        return name in await firing(server)

    await until(holds, f"{name} fires", within)


async def ends(server: Prometheus, name: str, within: float = FIRES_WITHIN_S) -> None:
    """Wait until the alert does not fire any more."""

    async def holds() -> bool:
        return name not in await firing(server)

    await until(holds, f"{name} ends", within)


async def without_value(server: Prometheus, dashboards: Iterable[Dashboard]) -> list[str]:
    """Return the queries of the dashboards that have no value now, each with its panel."""
    found = []
    for dashboard in dashboards:
        for title, query in dashboard.queries():
            expression = substituted(query.expression, WINDOW)
            values = await trio.to_thread.run_sync(partial(server.values, expression))
            if not values or all(math.isnan(value) for _, value in values):
                found.append(f"{dashboard.uid}, {title}: {expression} -> {values}")
    return found


async def every_query_has_a_value(server: Prometheus, dashboards: Sequence[Dashboard], within: float = 30.0) -> None:
    """Wait until each query of the dashboards has a value. AssertionError: with those that have none."""
    missing: list[str] = ["none was asked"]

    async def holds() -> bool:
        nonlocal missing
        missing = await without_value(server, dashboards)
        return not missing

    try:
        await until(holds, within=within)
    except AssertionError:
        down = await trio.to_thread.run_sync(server.down)
        raise AssertionError("\n".join(["queries without a value:", *missing, *down])) from None


async def rules_are_healthy(server: Prometheus) -> None:
    """Check that Prometheus has evaluated each rule without an error."""
    rules = await trio.to_thread.run_sync(server.rules)
    assert {rule["name"] for rule in rules} == {alert.name for alert in ALERTS}
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
