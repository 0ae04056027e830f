"""quire/spark/pipelines/progress.py"""

from __future__ import annotations

import io
import json

from rich.console import Console

from quire.spark.pipelines.progress import BatchProgress, PlainDisplay, Seen, TerminalDisplay, lag_of, make_display


def report(batch: int, rows: int, latest: object = None) -> str:
    source = {"description": "quire", "latestOffset": latest}
    value = {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": 1234.5}
    return json.dumps(value | {"durationMs": {"triggerExecution": 2500}, "sources": [source]})


def test_a_report_becomes_a_line_with_rows_rate_and_lag():
    parsed = BatchProgress.parse(report(3, 1000, {"v": 1, "p": {}, "behind": 17}))
    assert parsed.line() == "batch 3: 1000 rows in 2.5 s, 1234 rows/s, 17 entries behind"
    assert parsed.line(base=40).startswith("batch 43:")


def test_the_lag_is_read_from_json_and_from_its_text_and_summed_over_sources():
    assert lag_of([{"latestOffset": '{"behind": 2}'}, {"latestOffset": {"behind": 3}}]) == 5
    assert lag_of([{"latestOffset": None}, {"latestOffset": "not json"}, {}]) is None
    assert "behind" not in BatchProgress.parse(report(0, 1)).line()


def test_a_report_without_durations_or_rates_is_read_too():
    parsed = BatchProgress.parse('{"batchId": 0, "sources": []}')
    assert (parsed.rows, parsed.seconds, parsed.lag) == (0, 0.0, None)


def test_each_batch_with_rows_is_shown_once():
    seen = Seen()
    reports = [BatchProgress.parse(report(batch, rows)) for batch, rows in ((0, 5), (1, 6), (2, 0))]
    assert [each.batch for each in seen.new(reports)] == [0, 1]
    more = [*reports, BatchProgress.parse(report(2, 7))]
    assert [each.batch for each in seen.new(more)] == [2]
    assert seen.new(more) == []


def test_a_log_gets_whole_lines_only():
    out = io.StringIO()
    display = make_display(Console(file=out, width=20))
    assert isinstance(display, PlainDisplay)
    display.now("working")
    display.line("a line that is longer than the console is wide [1]")
    display.close()
    assert out.getvalue() == "a line that is longer than the console is wide [1]\n"


def test_a_terminal_shows_what_is_done_now_as_well():
    out = io.StringIO()
    display = make_display(Console(file=out, force_terminal=True, width=80))
    assert isinstance(display, TerminalDisplay)
    display.now("working")
    display.now("still working")
    display.line("a line")
    display.close()
    display.close()
    assert "a line" in out.getvalue()
    assert "working" in out.getvalue()
