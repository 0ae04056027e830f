"""Metrics have the names that dashboards for the original's bookies use."""

from __future__ import annotations

import re
from pathlib import Path

from autorecovery.service import RecoveryStats
from bookie.bookie import Bookie
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.errors import JournalWriteError
from bookie.journal.group_writer import GroupResult, Item
from bookie.journal.writer import JournalBatch, JournalTimes
from bookie.metrics import register
from broker.console.cluster_disks import journal_in
from quire.servers.autorecovery.recovery_metrics import register_recovery
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from tests.unit.bookie.build import Client, add_frames, run_of

ORIGINALS = Path(__file__).parents[2] / "golden/bookkeeper/http"
THREADS = {"thread", "threadPool"}
"""Labels for threads in the original; a bookie of Quire has one of each."""
OF_ALL_DIRECTORIES = re.compile(r"bookie_(THREAD|COMPACT)_RUNTIME(_count|_sum)?")


def labels_of_the_original(file: str = "metrics-names.txt") -> dict[str, set[str]]:
    lines = (ORIGINALS / file).read_text().splitlines()[1:]
    return {line.split()[0]: set(re.findall(r"\w+", line[line.find("{") : line.find("}")])) for line in lines}


def listed() -> dict[str, str]:
    """Return the listed names of the originals with "exposed" or a reason; those of summaries without an ending."""
    lines = (ORIGINALS.parents[1] / "metrics/originals.txt").read_text().splitlines()
    parts = [line.rpartition(" | ") for line in lines if "|" in line and not line.startswith("#")]
    return {name: reason for names, _, reason in parts for name in names.split()}


def exposed(bookie: Bookie) -> dict[tuple[str, str], float]:
    """Return the values by name and labels."""
    metrics = Metrics()
    register(metrics, bookie, ConnectionCounts())
    found: dict[tuple[str, str], float] = {}
    for line in metrics.exposition().decode().splitlines():
        if not line.startswith("#"):
            series = re.fullmatch(r"(\w+)({.*})? (\S+)", line)
            assert series is not None, line
            name, labels, value = series.groups()
            found[name, labels or ""] = float(value)
    return found


def summed(found: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the sums over folders and journals."""
    sums: dict[tuple[str, str], float] = {}
    for (name, labels), value in found.items():
        rest = re.sub(r'(indexDir|ledgerDir|journalIndex)="[^"]*",?', "", labels).replace(",}", "}").replace("{}", "")
        sums[name, rest] = sums.get((name, rest), 0) + value
    return sums


async def test_every_series_has_a_name_of_the_originals_with_its_labels_or_one_that_says_it_is_ours(bookie: Bookie):
    originals = labels_of_the_original()
    assert len(originals) > 100
    originals |= labels_of_the_original("metrics-names-4.18.txt")
    found = exposed(bookie)
    for name, labels in found:
        if not name.startswith("quire_"):
            assert name in originals
            wanted = originals[name] - THREADS
            if OF_ALL_DIRECTORIES.fullmatch(name):
                wanted -= {"ledgerDir", "indexDir"}
            assert set(re.findall(r"(\w+)=", labels)) == wanted, name


async def test_a_scrape_counts_the_ledgers_without_a_list_of_them(bookie: Bookie, client: Client, monkeypatch) -> None:
    await client.add(7, 0)
    monkeypatch.setattr(LedgerIndex, "ledgers", None)  # of a million ledgers a sorted list takes 30 ms
    found = summed(exposed(bookie))
    assert found["bookie_ledgers_count", ""] == found["bookie_ACTIVE_LEDGER_TOTAL", ""] == 1


async def test_what_was_done_is_counted(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 5)
    await client.fence(7)
    await client.add(7, 5)
    await client.read(7, 0)
    await bookie.checkpoint()
    found = summed(exposed(bookie))
    assert found["bookkeeper_server_ADD_ENTRY_REQUEST_count", '{success="true"}'] == 5
    assert found["bookkeeper_server_ADD_ENTRY_REQUEST_count", '{success="false"}'] == 1
    assert found["bookkeeper_server_READ_ENTRY_FENCE_REQUEST_count", '{success="true"}'] == 1
    assert found["bookkeeper_server_READ_ENTRY_REQUEST_count", '{success="true"}'] == 2
    assert found["bookie_ledgers_count", ""] == 1
    assert found["bookie_flush_count", '{success="true"}'] == 1
    assert found["bookie_flush_size_sum", '{success="true"}'] >= found["bookie_WRITE_BYTES", ""] > 0
    assert found["bookie_journal_JOURNAL_SYNC_count", '{success="true"}'] == bookie.journal.groups >= 2
    assert found["bookie_journal_JOURNAL_ADD_ENTRY_count", '{success="true"}'] == 5
    written = found["bookie_journal_JOURNAL_WRITE_BYTES", ""]
    assert found["bookie_journal_JOURNAL_FORCE_WRITE_BATCH_BYTES_sum", '{success="true"}'] == written > 0
    assert found["bookie_BOOKIE_ADD_ENTRY_BYTES_count", '{success="true"}'] == 5
    assert found["bookie_BOOKIE_ADD_ENTRY_BYTES_sum", '{success="true"}'] == found["bookie_WRITE_BYTES", ""]
    assert found["bookie_journal_JOURNAL_QUEUE_LATENCY_count", '{success="true"}'] == 5
    assert found["bookie_journal_JOURNAL_CREATION_LATENCY_count", '{success="true"}'] == 1
    assert found["bookie_journal_JOURNAL_NUM_FLUSH_EMPTY_QUEUE", ""] == bookie.journal.groups
    assert found["bookie_journal_JOURNAL_NUM_FLUSH_MAX_OUTSTANDING_BYTES", ""] == 0
    for part in ("entrylog", "locations_index", "ledger_index"):
        assert found[f"bookie_flush_{part}_count", '{success="true"}'] >= 1, part
    parts = [found[f"bookie_flush_{part}_sum", '{success="true"}'] for part in ("entrylog", "locations_index")]
    assert sum(parts) <= found["bookie_flush_sum", '{success="true"}']
    assert found["bookie_write_cache_count", ""] == 0
    assert found["bookie_ACTIVE_LEDGER_TOTAL", ""] == 1
    assert found["bookie_SERVER_STATUS", ""] == 1
    bookie.set_read_only(True)
    assert exposed(bookie)["bookie_SERVER_STATUS", ""] == 0


def test_the_times_of_the_journal_are_those_of_its_groups_and_of_what_they_brought() -> None:
    times = JournalTimes()
    run = run_of(7, 0, 5)
    item = Item(run, run.size, None, lambda _: None)
    written = GroupResult(1, None, None, size=4096, took_s=0.25, began_at=1.125, is_full=True)
    times.passed([JournalBatch(1.0, [item])], [written], 1.5)
    failed = GroupResult(1, None, JournalWriteError("full"), took_s=0.125, began_at=2.25)
    times.passed([JournalBatch(2.0, [item])], [failed], 2.5)
    assert (sum(times.queued.counts), times.queued.total) == (10, 5 * 125 + 5 * 250)
    assert (times.flushed_full, times.flushed_empty, times.flushed_waited) == (1, 1, 0)
    assert (sum(times.syncs.counts), times.syncs.total) == (1, 250)
    assert (sum(times.syncs_failed.counts), times.syncs_failed.total) == (1, 125)
    assert (sum(times.adds.counts), times.adds.total) == (5, 2500)
    assert (sum(times.adds_failed.counts), times.adds_failed.total) == (5, 2500)
    assert (times.group_bytes.total, times.written_bytes) == (4096, 4096)


async def test_adds_in_progress_waiting_and_refused_are_shown_while_they_are(bookie: Bookie, client: Client) -> None:
    cache = bookie.storage.directories[0].parts.cache
    client.send(add_frames(7, 0, 3))  # the journal's thread answers through the loop, which is busy until the end
    found = summed(exposed(bookie))
    assert found["bookkeeper_server_ADD_ENTRY_IN_PROGRESS", ""] == 3
    assert found["bookie_write_cache_count", ""] == 3
    cache.bytes_max = 0
    client.send(add_frames(7, 3, 2))
    found = summed(exposed(bookie))
    assert found["bookkeeper_server_ADD_ENTRY_BLOCKED", ""] == 2
    assert found["quire_bookie_adds_waiting_bytes", ""] > 0
    assert found["bookkeeper_server_ADD_ENTRY_REJECTED", ""] == 0
    bookie.adds.refuse_waiting()
    found = summed(exposed(bookie))
    assert found["bookkeeper_server_ADD_ENTRY_REJECTED", ""] == 2
    assert found["bookkeeper_server_ADD_ENTRY_BLOCKED", ""] == 0
    assert found["bookkeeper_server_ADD_ENTRY_BLOCKED_WAIT_count", '{success="false"}'] == 2
    await client.take(2)
    assert summed(exposed(bookie))["bookkeeper_server_ADD_ENTRY_IN_PROGRESS", ""] == 0


async def test_the_console_finds_the_journal_in_the_metrics(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 5)
    metrics = Metrics()
    register(metrics, bookie, ConnectionCounts())
    latencies, figures = journal_in(metrics.exposition().decode())
    assert set(latencies) == {"sync", "add", "queue"}
    assert figures["syncs"] == bookie.journal.groups
    assert figures["queuedBytesMax"] == bookie.config.journal.queue_size_max
    assert (figures["queuedBytes"], figures["writeFailures"]) == (0, 0)


async def test_auto_recovery_beside_a_bookie_has_the_originals_names() -> None:
    metrics = Metrics()
    register_recovery(metrics, RecoveryStats(), "replication_")
    originals = labels_of_the_original("replication-metrics-names.txt")
    known = listed()
    ours = ("IS_AUDITOR", "AUDITS_FAILED", "RETURNED_", "NOTED_", "LEDGER_CHECKS_FAILED", "OPEN_LEDGERS_DEFERRED")
    # (the recorded bookie had not counted these yet)
    elsewhere = ("election_attempts", "NUM_UNDER_REPLICATED_LEDGERS_GUAGE")
    for line in metrics.exposition().decode().splitlines():
        name = re.split(r"[{ ]", line)[0]
        if not line.startswith("#") and not any(each in name for each in (*ours, *elsewhere)):
            if name.startswith("replication_bookkeeper_client_"):  # (the recording has those of a bookie alone)
                assert known[re.sub("^replication_|_(sum|count)$", "", name)] == "exposed", name
                continue
            assert name in originals, name
            assert set(re.findall(r"(\w+)=", line)) == originals[name], name
