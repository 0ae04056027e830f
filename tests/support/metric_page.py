"""docs/metrics.md, made from the declarations of the metrics.

python -m tests.support.metric_page --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from autorecovery.service import RecoveryStats
from bookie.metrics import register as register_bookie
from bookie.scrubber.metrics import register_scrubber
from bookie.scrubber.scrubber import Scrubber
from broker.metrics import register as register_broker
from broker.ownership.metrics import register_bundles
from broker.security.metrics import register_authentication
from broker.series.config import MetricsOptions
from broker.tracing.metrics import register_tracing
from quire.metadata.local.memory import MemoryTree
from quire.metadata.times import MetadataTimes
from quire.servers.autorecovery.recovery_metrics import register_recovery
from quire.servers.broker.client_metrics import register_broker_client
from quire.servers.broker.tiered_metrics import register_objects
from quire.servers.broker.web import register_cluster
from quire.servers.machine_metrics import register_machine, register_ready
from quire.servers.standalone.web import register_embedded
from quire.service.http import register_answers
from quire.service.measuring.loop_watch import watch_loop
from quire.service.metrics import Declared, Metrics, exposed_type
from quire.service.programs.command_line import run_command
from quire.service.serve import ConnectionCounts
from quire.service.web.protocol import Answers
from quire.world.doors import World
from simulation.machines.world import run_world
from tests.unit.bookie.build import CONFIG, opened
from tests.unit.broker.peers import in_broker

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"
ORIGINALS = ROOT / "tests" / "golden" / "metrics" / "originals.txt"
EVERYTHING = MetricsOptions(consumers=True, producers=True, cursors=True, backlog_bytes=True, ledger_client=True)
OURS = (
    "quire_",
    "process_",
    "bookie_adds",
    "bookie_add_bytes",
    "bookie_reads",
    "bookie_journal_syncs",
    "pulsar_ml_ledger_reads",
)
OURS_TOO = (
    "auditor_IS_AUDITOR",
    "auditor_AUDITS_FAILED",
    "auditor_RETURNED_BOOKIES",
    "auditor_NOTED_",
    "auditor_LEDGER_",
    "replication_worker_OPEN_LEDGERS_DEFERRED",
)
"""Beginnings of names that the originals do not have."""
HEAD = """# Metrics

`GET /metrics` of the web port of every server (`httpServerPort` of a bookie and of auto recovery) has Prometheus'
text. This page is made from the declarations (`python -m tests.support.metric_page --write`).

A name is Pulsar's or BookKeeper's wherever they have one, with its labels; Quire's own begin with `quire_`, but for a
few older ones. Types are those of the text: a counter of the originals whose name does not end in `_total` is
`untyped`, as parsers would rename it. "Last round" is the last `statsUpdateFrequencyInSecs`; rates and the buckets of
topics are of it, as in the original. Counts of a topic begin when it is loaded. A topic that is not loaded has no
series. The labels `thread` and `threadPool` of the original's bookies are left out, because there is one of each, and
`ledgerDir` and `indexDir` of `bookie_THREAD_RUNTIME` and `bookie_COMPACT_RUNTIME`, whose rounds are of all directories.
A bookie with `autoRecoveryDaemonEnabled=true` exposes the metrics of auto recovery with `replication_` before their
names.

**Number of series.** `quireMaxTopicsInMetrics` topics have series of their own: those that had some before, then those
with traffic in the last round, then any. All others are summed in one series per namespace with
`topic="quire_rest"`, so that sums over topics are right; of times, ages and limits it has the largest. If they are more
than 2,000, their sums are those of the last round. A topic whose place becomes free gives it to another, whose counters
leave the rest: Prometheus takes that for a restart of the counter of the rest. `quireMaxSubscriptionsInMetrics` bounds
subscriptions in the same way (`subscription="quire_rest"`), and consumers and producers, which are then left out. With
`exposeTopicLevelMetricsInPrometheus=false` the same families have the labels cluster and namespace only.
`exposeConsumerLevelMetricsInPrometheus`, `exposeProducerLevelMetricsInPrometheus`,
`exposeManagedCursorMetricsInPrometheus`, `exposeSubscriptionBacklogSizeInPrometheus` and
`bookkeeperClientExposeStatsToPrometheus` (the client of the bookies) add families,
`exposeManagedLedgerMetricsInPrometheus=false` removes those of `pulsar_ml_...` with a namespace.

**Cost.** A scrape is made in steps of about 2 ms, sent in parts of 64 KB, and shared by all scrapers that ask within a
second. At most three texts are made at a time, of at most 256 MB each; another request gets 503. Recording is done once
per run of entries and once per pass of the journal. `python -m bench metrics` measures both. With 5,000 real topics,
each with series of its own, a scrape has 14.5 MB and takes 0.18 s, in steps of at most 4 ms.

**Quantiles** (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0) are of the last full minute, and at most a fifth too large;
NaN: nothing happened.

"""


class Family(NamedTuple):
    """A family and the servers that expose it."""

    declared: Declared
    servers: tuple[str, ...]


async def families(world: World) -> list[Family]:
    """Return all families with all options on."""
    by_server: dict[str, Metrics] = {name: Metrics() for name in ("broker", "standalone", "bookie", "autorecovery")}
    async with in_broker(transactions=True, allow_override_entry_filters=True) as room:
        cast(Any, room.broker.metadata).times = MetadataTimes()  # as the stores of servers have
        for name in ("broker", "standalone"):
            register_broker(by_server[name], room.broker, ConnectionCounts(), "c", EVERYTHING)
            register_authentication(by_server[name], cast(Any, object()))
            register_answers(by_server[name], Answers())
            register_tracing(by_server[name], None)
            register_objects(by_server[name], None, "c")
            register_ready(by_server[name], bool)
            register_broker_client(by_server[name], cast(Any, object()), "c")
    register_cluster(by_server["broker"], int, bool)
    register_bundles(by_server["broker"], "c", "b", dict, cast(Any, object()))
    async with opened(world, MemoryTree(), CONFIG) as bookie:
        for name in ("bookie", "standalone"):
            register_bookie(by_server[name], bookie, ConnectionCounts())
            register_scrubber(by_server[name], Scrubber(bookie, cast(Any, object()), None))
        register_embedded(by_server["standalone"], bookie)
    register_recovery(by_server["autorecovery"], RecoveryStats())
    for metrics in by_server.values():
        watch_loop(metrics)
        register_machine(metrics, {})
    found: dict[str, Family] = {}
    for server, metrics in by_server.items():
        for declared in metrics.declared():
            before = found[declared.name].servers if declared.name in found else ()
            found[declared.name] = Family(declared, (*before, server))
    return list(found.values())


def is_original(name: str) -> bool:
    """Return whether Pulsar or BookKeeper has the name."""
    return not name.startswith((*OURS, *OURS_TOO))


def unit_of(declared: Declared) -> str:
    """Return the unit, as the name and the text say it.

    >>> unit_of(Declared("gauge", "x_seconds", ""))
    's'

    >>> unit_of(Declared("gauge", "x_ms", "")), unit_of(Declared("gauge", "x_msg", ""))
    ('ms', '')
    """
    name, doc = f"{declared.name.lower()}_", declared.doc.lower()
    if "per second" in doc:
        return "bytes/s" if "bytes" in doc.split("per second")[0] else "1/s"
    for unit, signs in (
        ("µs", ("microsecond",)),
        ("ns", ("nanosecond",)),
        ("ms", ("millisecond", "in ms", "_ms_", "_time ")),
        ("s", ("_seconds", "seconds")),
        ("bytes", ("_bytes", "bytes", "memory")),
    ):
        if any(sign in name or sign in doc for sign in signs):
            return unit
    return ""


def page(found: Iterable[Family]) -> str:
    """Return the text of the page."""
    lines = [HEAD]
    groups = (
        ("Brokers and standalone servers", lambda servers: "broker" in servers or servers == ("standalone",)),
        ("Bookies and standalone servers", lambda servers: "bookie" in servers and "broker" not in servers),
        ("Auto recovery", lambda servers: servers == ("autorecovery",)),
    )
    for title, belongs in groups:
        lines.append(f"## {title}\n\n| name | type | labels | unit | meaning | original |\n|---|---|---|---|---|---|\n")
        for declared, servers in sorted(found):
            if belongs(servers):
                kind = exposed_type(declared.type, declared.name)
                original = "yes" if is_original(declared.name) else "no"
                labels = ", ".join(declared.label_names)
                doc = declared.doc.replace("|", "\\|").rstrip(".")
                lines.append(f"| `{declared.name}` | {kind} | {labels} | {unit_of(declared)} | {doc} | {original} |\n")
        lines.append("\n")
    lines.append("## Names of the originals that are not exposed\n\n| names | reason |\n|---|---|\n")
    reasons: dict[str, list[str]] = {}
    for name, reason in originals().items():
        if reason != "exposed":
            reasons.setdefault(reason, []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {reason} |\n" for reason, names in reasons.items()]
    return "".join(lines)


def originals() -> dict[str, str]:
    """Return the names of the originals; "exposed", or the reason why not."""
    found: dict[str, str] = {}
    for line in ORIGINALS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, _, reason = line.partition("|")
            for name in names.split():
                assert name not in found, f"{name} is listed twice"
                found[name] = reason.strip()
    return found


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(metric_page, name="python -m tests.support.metric_page", text=metric_page.__doc__)


def metric_page(
    write: Annotated[bool, typer.Option("--write", help="Write docs/metrics.md.")] = False,
) -> int:
    """Write docs/metrics.md, or print it."""
    text = page(run_world(1, families))
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
