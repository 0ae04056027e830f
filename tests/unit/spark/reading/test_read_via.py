"""Both ways to read, past the broker and through it, have equal rows for equal offsets. Covers planning/stored,
planning/fragments, reading/bookie_entries, reading/scan, reading/row_run and quire.ledger.reading.known, without
Spark."""

from __future__ import annotations

import sys
from random import Random

import pulsar
import pytest

from quire.spark.reading import row_run
from tests.support.small_cluster import SmallCluster
from tests.unit.spark.layouts import fill
from tests.unit.spark.reading.via import Links, outcome

QUICK = range(4)
SEEDS = 200


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, SEEDS))])
def test_equal_rows_for_equal_offsets(
    cluster: SmallCluster, client: pulsar.Client, links: Links, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    layout = fill(cluster, client, seed)
    rng = Random(seed)
    failing = rng.sample(cluster.bookies, rng.randint(0, layout.failures_max))
    links.lost, links.damaged = (failing, ()) if rng.random() < 0.5 else ((), failing)
    for more in layout.starts:
        # Through the broker each entry is opened by itself, and from bookies as many as can be at once.
        monkeypatch.setattr(row_run, "ROWS_MIN", sys.maxsize)
        expected = outcome(cluster.options, layout.topic, "broker", **more)
        monkeypatch.setattr(row_run, "ROWS_MIN", 1)
        monkeypatch.setattr(row_run, "FEW_ROWS", 1)
        found = outcome(cluster.options, layout.topic, "bookies", **more)
        assert found == expected, more
        assert outcome(cluster.options, layout.topic, "auto", **more) == expected, more
    assert links.used or layout.trimmed
