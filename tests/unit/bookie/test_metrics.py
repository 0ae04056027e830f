"""Metrics have the names that dashboards for the original's bookies use."""

from __future__ import annotations

import re
from pathlib import Path

from bookie.bookie import Bookie
from bookie.errors import JournalWriteError
from bookie.journal.group_writer import GroupResult, Item
from bookie.journal.writer import JournalBatch, JournalTimes
from bookie.metrics import register
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from tests.unit.bookie.build import Client, run_of

ORIGINALS = Path(__file__).parents[2] / "golden/bookkeeper/http/metrics-names.txt"
PLACES = {"indexDir", "ledgerDir", "journalIndex", "thread", "threadPool"}
"""Labels for folders and threads in the original; a bookie of Quire has one of each."""


def labels_of_the_original() -> dict[str, set[str]]:
    lines = ORIGINALS.read_text().splitlines()[1:]
    return {line.split()[0]: set(re.findall(r"\w+", line[line.find("{") : line.find("}")])) for line in lines}


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


async def test_every_series_has_a_name_of_the_originals_with_its_labels_or_one_that_says_it_is_ours(bookie: Bookie):
    originals = labels_of_the_original()
    assert len(originals) > 100
    found = exposed(bookie)
    for name, labels in found:
        if not name.startswith("quire_"):
            assert name in originals
            assert set(re.findall(r"(\w+)=", labels)) == originals[name] - PLACES, name


async def test_what_was_done_is_counted(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 5)
    await client.fence(7)
    await client.add(7, 5)
    await client.read(7, 0)
    await bookie.checkpoint()
    found = exposed(bookie)
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
    assert found["bookie_SERVER_STATUS", ""] == 1
    bookie.set_read_only(True)
    assert exposed(bookie)["bookie_SERVER_STATUS", ""] == 0


def test_the_times_of_the_journal_are_those_of_its_groups_and_of_what_they_brought() -> None:
    times = JournalTimes()
    run = run_of(7, 0, 5)
    item = Item(run, run.size, None, lambda _: None)
    written = GroupResult(1, None, None, size=4096, took_s=0.25)
    times.passed([JournalBatch(1.0, [item])], [written], 1.5)
    times.passed([JournalBatch(2.0, [item])], [GroupResult(1, None, JournalWriteError("full"), took_s=0.125)], 2.5)
    assert (sum(times.syncs.counts), times.syncs.total) == (1, 250)
    assert (sum(times.syncs_failed.counts), times.syncs_failed.total) == (1, 125)
    assert (sum(times.adds.counts), times.adds.total) == (5, 2500)
    assert (sum(times.adds_failed.counts), times.adds_failed.total) == (5, 2500)
    assert (times.group_bytes.total, times.written_bytes) == (4096, 4096)
