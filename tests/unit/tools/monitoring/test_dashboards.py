"""Dashboards: the files are as generated, and have the form that Grafana reads.

Covers tools/monitoring/panels.py, dashboards.py, broker_panels.py, bookie_panels.py, spark_panels.py, __main__.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools.monitoring.__main__ import ROOT, generated, stale
from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.panels import COLUMNS, SCHEMA_VERSION, UNITS, Panel, Query
from tools.monitoring.prometheus import substituted

FILES = sorted((ROOT / "conf" / "grafana").glob("*.json"))
TOP: dict[str, type] = {
    "annotations": dict,
    "editable": bool,
    "graphTooltip": int,
    "panels": list,
    "refresh": str,
    "schemaVersion": int,
    "tags": list,
    "templating": dict,
    "time": dict,
    "timezone": str,
    "title": str,
    "uid": str,
    "version": int,
}
"""Fields of a dashboard in Grafana's JSON model, with their types."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_files_are_as_generated_and_a_changed_missing_or_foreign_one_is_found(tmp_path: Path) -> None:
    assert stale(ROOT) == []
    for name, text in generated().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert stale(tmp_path) == []
    (tmp_path / "conf/grafana/quire-broker.json").write_text("{}")
    (tmp_path / "conf/grafana/own.json").write_text("{}")
    (tmp_path / "conf/prometheus/quire.rules.yml").unlink()
    assert stale(tmp_path) == [
        "conf/grafana/own.json",
        "conf/grafana/quire-broker.json",
        "conf/prometheus/quire.rules.yml",
    ]


def test_there_is_a_dashboard_for_each_kind_of_server_and_for_spark() -> None:
    assert [path.stem for path in FILES] == ["quire-bookie", "quire-broker", "quire-spark", "quire-standalone"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_has_the_fields_of_grafanas_model(path: Path) -> None:
    model = load(path)
    for name, kind in TOP.items():
        assert type(model[name]) is kind, name
    assert model["schemaVersion"] == SCHEMA_VERSION
    assert model["uid"] == path.stem
    assert len(model["uid"]) <= 40
    assert "id" not in model, "Grafana gives the id of an imported dashboard"
    for variable in model["templating"]["list"]:
        assert variable["type"] in ("datasource", "query")
        assert variable["name"]
        assert variable["label"]
        if variable["type"] == "query":
            assert variable["datasource"] == SOURCE
            assert variable["query"]["query"].startswith("label_values(")
    names = {variable["name"] for variable in model["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(model["panels"])))
    assert used <= names, f"variables that are not declared: {used - names}"
    declared = {variable["name"] for variable in model["templating"]["list"]}
    assert declared <= used, f"variables that no panel obeys: {declared - used}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_panel_has_unit_description_and_legend_and_none_covers_another(path: Path) -> None:
    model = load(path)
    taken: dict[tuple[int, int], int] = {}
    ids = [panel["id"] for panel in model["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in model["panels"] if panel["type"] != "row"]
    assert len(set(titles)) == len(titles), "two panels of one title"
    for panel in model["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], f"{panel['title']} covers another panel"
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"] == SOURCE
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters))
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert all(legends), panel["title"]
        assert len(set(legends)) == len(legends), f"{panel['title']}: lines cannot be told apart"
        for target in panel["targets"]:
            assert target["expr"]
            assert target["datasource"] == SOURCE


def test_every_expression_can_be_asked_outside_grafana() -> None:
    found = [substituted(query.expression, "5m") for each in DASHBOARDS for _, query in each.queries()]
    assert len(found) > 60
    with pytest.raises(AssertionError, match="unknown variable"):
        substituted('a{b="$c"}', "5m")


def test_a_panel_without_a_known_unit_or_an_expression_is_refused() -> None:
    with pytest.raises(AssertionError, match="unit furlongs"):
        Panel("A", "furlongs", "Text.", (Query("a", "a"),))
    with pytest.raises(AssertionError, match="needs an expression"):
        Panel("A", "s", "Text.", ())
