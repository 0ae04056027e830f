"""docs/metrics.md, and what servers under traffic expose, against the names of the originals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from simulation.machines.world import run_world
from tests.support import web
from tests.support.metric_page import PAGE, families, is_original, originals, page
from tests.support.raw import RawClient
from tests.support.server import standalone

FOUND = run_world(1, families)
NAMES = {declared.name: servers for declared, servers in FOUND}
CONF: dict[str, object] = {
    "exposeConsumerLevelMetricsInPrometheus": True,
    "exposeProducerLevelMetricsInPrometheus": True,
    "exposeManagedCursorMetricsInPrometheus": True,
    "exposeSubscriptionBacklogSizeInPrometheus": True,
    "bookkeeperClientExposeStatsToPrometheus": True,
    "transactionCoordinatorEnabled": True,
}
ELSEWHERE = re.compile(
    r"pulsar_(authentication|expired|txn_|schema)|.*_filter_"
    r"|brk_ledgeroffloader_|quire_offloaded"
    r"|quire_(bundles|meta|backlog|certificate|entries_passed|bookie_job|logins)"
)
"""Families that need TLS, authentication, filters, transactions, schemas, compaction, offloaded ledgers or a cluster to
have samples."""


def test_the_page_is_what_the_declarations_say() -> None:
    assert PAGE.read_text() == page(FOUND), "stale: python -m tests.support.metric_page --write"


def test_every_name_is_one_of_the_originals_or_says_that_it_is_ours() -> None:
    listed = originals()
    known = {re.sub(r"_(count|sum)$", "", name) for name in listed} | set(listed)
    bookies = (Path(__file__).parents[2] / "golden/bookkeeper/http/metrics-names.txt").read_text()
    for name in NAMES:
        if is_original(name):
            assert (
                re.sub(r"_(count|sum)$", "", name) in known
                or name in known
                or f"{name} " in bookies
                or (name.startswith(("pulsar_txn_execution_latency_le_", "pulsar_ml_cache_")))
            ), f"{name}: list it, or begin it with quire_"


def test_every_name_of_the_originals_is_exposed_or_has_a_reason() -> None:
    for name, reason in originals().items():
        base = re.sub(r"_(count|sum)$", "", name)
        exposed = any(each in NAMES for each in (name, base, f"{name}_count", f"{name}_sum"))
        assert exposed == (reason == "exposed"), f"{name}: {reason}"
        assert reason == "exposed" or len(reason) > 20, name


def check(text: str, server: str) -> set[str]:
    """Check the whole text; return the families that have samples."""
    heads = re.findall(r"^# (HELP|TYPE) (\S+)", text, re.MULTILINE)
    assert len(heads) == len(set(heads)), "a family has one HELP and one TYPE"
    assert {name for kind, name in heads if kind == "HELP"} == {name for kind, name in heads if kind == "TYPE"}
    seen: set[str] = set()
    series: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in series, key
            series.add(key)
            base = next((name for name in candidates(sample.name) if name in NAMES), None)
            assert base is not None, f"{sample.name} is not in docs/metrics.md"
            assert server in NAMES[base], f"{base} is not said to be of {server}"
            seen.add(base)
    return seen


def candidates(name: str) -> Iterable[str]:
    return name, re.sub(r"_(bucket|count|sum)$", "", name)


@pytest.mark.real_clock
def test_a_standalone_server_under_traffic_exposes_every_name_that_the_page_has_of_it(tmp_path: Path) -> None:
    with standalone(tmp_path, CONF) as server, RawClient(server.port) as client:
        client.subscribe("persistent://public/default/t")
        client.flow(10)
        client.producer("persistent://public/default/t")
        client.publish(b"a")
        message_id, _ = client.message()
        client.ack(message_id)
        text = web.get(f"{server.web}/metrics", timeout=10).text
    seen = check(text, "standalone")
    wanted = {name for name, servers in NAMES.items() if "standalone" in servers and not ELSEWHERE.match(name)}
    assert sorted(wanted - seen) == []
