"""Alerts: what promtool says of the files, one story per alert with its shipped durations, and a runbook for each.

Covers tools/monitoring/alerts.py, alert_table.py, example.py, and docs/runbooks/alerts.md.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.debian import installed
from tests.unit.tools.monitoring.alert_stories import STORIES, Series
from tools.monitoring.__main__ import ROOT, RULES
from tools.monitoring.alert_table import ALERTS
from tools.monitoring.alerts import RUNBOOK, Alert, rules_text

CONF = ROOT / "conf" / "prometheus"


def promtool(*words: str, cwd: Path = CONF) -> str:
    """Return what promtool prints. AssertionError: it refuses."""
    done = subprocess.run(
        [installed("prometheus", "promtool"), *words], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def story_text(folder: Path, names: Iterable[str] = STORIES) -> str:
    """Return promtool's file of tests: of each alert the fault, and each healthy story, in which nothing fires."""
    blocks = []
    for name in names:
        story = STORIES[name]
        blocks.append(_block(name, story.fault, story.minutes, fires=True))
        blocks += [_block(name, health, story.minutes, fires=False) for health in story.health]
    return f"rule_files: [{json.dumps(str(folder / RULES))}]\nevaluation_interval: 1m\ntests:\n" + "".join(blocks)


def _block(name: str, series: Series, minutes: int, *, fires: bool) -> str:
    made = f"  - name: {name} {'fires' if fires else 'is quiet'}\n    interval: 1m\n    input_series:\n"
    for key, values in series.items():
        made += f"      - series: {json.dumps(key)}\n        values: {json.dumps(values)}\n"
    if fires:
        question, samples = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', '[{labels: "{}", value: 1}]'
    else:
        question, samples = 'count by (alertname) (ALERTS{alertstate="firing"})', "[]"
    return made + (
        f"    promql_expr_test:\n      - expr: {json.dumps(question)}\n        eval_time: {minutes}m\n"
        f"        exp_samples: {samples}\n"
    )


def test_promtool_accepts_the_rules_and_the_example_configuration() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "--lint-fatal", RULES)
    assert "valid prometheus config" in promtool("check", "config", "--lint-fatal", "prometheus.yml")


def test_each_alert_fires_on_its_fault_and_on_nothing_that_looks_like_it(tmp_path: Path) -> None:
    assert STORIES.keys() == {alert.name for alert in ALERTS}
    (tmp_path / RULES).write_text(rules_text(ALERTS))
    (tmp_path / "stories.yml").write_text(story_text(tmp_path))
    promtool("test", "rules", "stories.yml", cwd=tmp_path)


def test_a_rule_that_would_never_fire_is_found(tmp_path: Path) -> None:
    broken = rules_text(ALERTS).replace("bookie_SERVER_STATUS == 0", "bookie_SERVER_STATUS == 2")
    (tmp_path / RULES).write_text(broken)
    (tmp_path / "stories.yml").write_text(story_text(tmp_path, ["QuireBookieReadOnly"]))
    with pytest.raises(AssertionError, match="QuireBookieReadOnly"):
        promtool("test", "rules", "stories.yml", cwd=tmp_path)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_words_for_an_operator(alert: Alert) -> None:
    assert alert.name.startswith("Quire")
    assert len(alert.summary) > 15
    assert alert.description.endswith((".", ")."))
    assert alert.description != alert.summary


def sections() -> Iterator[tuple[str, str]]:
    """Yield heading and text of each section of the runbooks."""
    text = (ROOT / RUNBOOK).read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def test_each_alert_has_a_runbook_with_meaning_look_and_remedy_and_no_runbook_is_of_an_unknown_alert() -> None:
    found = dict(sections())
    assert list(found) == [alert.name for alert in ALERTS]
    for name, text in found.items():
        for part in ("**Meaning.**", "**Look.**", "**Do.**"):
            assert part in text, f"the runbook of {name} lacks {part}"


def test_short_ranges_and_durations_replace_all_of_the_shipped_ones() -> None:
    shown = rules_text(ALERTS, window="15s", seconds=0)
    assert "$window" not in shown
    assert set(re.findall(r"\[(\w+)\]", shown)) == {"15s"}
    assert set(re.findall(r"for: (\w+)", shown)) == {"0s"}
    with pytest.raises(AssertionError, match="window"):
        Alert(
            name="A",
            group="g",
            severity="warning",
            expression="a > 0",
            window="5m",
            seconds=0,
            summary="",
            description="",
        )
