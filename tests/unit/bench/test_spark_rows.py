"""bench.spark_rows.report: what is short is called so, and the page of measurements gets its section"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.spark_rows import report
from bench.spark_rows.report import BATCH, MEMORY, PICTURES, PLAN, RATIOS, Results, rows, section, write_docs

PAGE = "# Measured results\n\nText.\n\n## Spark\n\nold\n\n## Others\n\nmore\n"


def results(fast: float = 1000.0, batch_s: float = 0.2) -> Results:
    names = sorted({name for ratio in RATIOS for name in (ratio.over, ratio.under)})
    slow = {name: 400.0 for name in names} | {"cluster: source, bookies": fast, "sink, exactly once": fast}
    rates = {kind: [slow, {name: 2 * rate for name, rate in slow.items()}] for kind in ("batched", "unbatched")}
    sizes = {"source, from bookies": {1: 10.0, 100: 20.0}}
    return Results(rates=rates, sizes=sizes, single={BATCH: batch_s, PLAN: 1.0, MEMORY: 301.0}, slowness=1.5)


def test_ratios_are_medians_of_the_rounds_and_judged_by_kind():
    found = {row.title: row for row in rows(results(fast=600.0))}
    assert found["batched: bookie way / client"].found == 1.5
    assert found["batched: bookie way / client"].mark == ">= 1 ok"
    assert found["unbatched: bookie way / client"].mark == ">= 2 SHORT"
    assert found["unbatched: bookie way / local Parquet"].mark == ""
    assert (found[BATCH].good, found[PLAN].good, found[MEMORY].good) == (True, True, False)
    assert {row.title: row for row in rows(results(batch_s=0.3))}[BATCH].mark == "<= 0.25 SHORT"


def test_every_wanted_figure_of_the_two_kinds_is_compared():
    wanted = {(row.title, row.wanted) for row in rows(results()) if row.wanted is not None}
    assert {
        ("batched: broker way / client", 0.6),
        ("unbatched: broker way / client", 0.9),
        ("batched: bookie way / client", 1.0),
        ("unbatched: bookie way / client", 2.0),
        ("batched: bookie way / local Parquet", 0.4),
        ("batched: exactly-once sink / client", 1.0),
        (BATCH, 0.25),
        (PLAN, 2.0),
        (MEMORY, 300.0),
    } <= wanted


def test_the_section_of_the_page_is_replaced_and_says_what_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report, "pictures", lambda results, folder: None)
    page = tmp_path / "measurements.md"
    page.write_text(PAGE)
    for fast in (100.0, 600.0):
        write_docs(results(fast=fast), tmp_path, day="2026-01-31")
    text = page.read_text()
    assert text == PAGE.replace("## Spark\n\nold\n", section(results(fast=600.0), "2026-01-31"))
    assert "| cluster: source, bookies | 900 | 900 |" in text
    assert "| unbatched: bookie way / client | 1.50 (short) | >= 2 |" in text
    assert "| batched: bookie way / client | 1.50 | >= 1 |" in text
    assert all(f"](measured/{name})" in text for name in PICTURES)


@pytest.mark.full  # matplotlib takes long to load
def test_the_pictures_are_drawn(tmp_path: Path):
    report.pictures(results(), tmp_path)
    for name in PICTURES:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
