"""Panels, rows and dashboards, and their form in Grafana's JSON. Pure.

Layout is computed: a row has panels of equal height, placed from left to right over 24 columns. Ids are positions, so
the file of an unchanged dashboard does not change.
Source: the dashboard JSON model of Grafana's documentation, schema version 39 (Grafana 10.4 and later).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 39
COLUMNS = 24
HEIGHT = 8
STAT_HEIGHT = 4
UNITS = frozenset(("short", "none", "bytes", "Bps", "ms", "s", "ops", "percentunit", "bool_on_off", "dateTimeFromNow"))
"""Units of Grafana that panels may have."""
Kind = Literal["timeseries", "stat"]
SOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel. `legend` may have labels in double braces."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `description` says what a reader learns from it, and what is normal."""

    title: str
    unit: str
    description: str
    queries: Sequence[Query]
    kind: Kind = "timeseries"
    width: int = 8
    warning_above: float | None = None
    """Threshold from which the panel is red; None: none."""
    warning_below: float | None = None

    def __post_init__(self) -> None:
        assert self.unit in UNITS, f"{self.title}: unit {self.unit} is not in UNITS"
        assert self.queries, f"{self.title}: a panel needs an expression"
        assert self.warning_above is None or self.warning_below is None, f"{self.title}: one threshold"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels with a common title."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the dashboard: the values of a label. It is used as `$name` in label matchers."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; `uid` is also the name of its file."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    def queries(self) -> Iterator[tuple[str, Query]]:
        """Yield each query with the title of its panel."""
        for row in self.rows:
            for panel in row.panels:
                for query in panel.queries:
                    yield panel.title, query

    def text(self) -> str:
        """Return the content of its file."""
        return json.dumps(self.model(), indent=2) + "\n"

    def model(self) -> dict[str, Any]:
        """Return it in Grafana's form."""
        return {
            "annotations": {"list": [_alerts_as_annotations()]},
            "description": self.description,
            "editable": True,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "links": [
                {
                    "asDropdown": True,
                    "icon": "external link",
                    "includeVars": False,
                    "keepTime": True,
                    "tags": ["quire"],
                    "targetBlank": False,
                    "title": "Quire",
                    "tooltip": "",
                    "type": "dashboards",
                    "url": "",
                }
            ],
            "panels": list(_placed(self.rows)),
            "refresh": "30s",
            "schemaVersion": SCHEMA_VERSION,
            "tags": ["quire"],
            "templating": {"list": [_data_source(), *map(_variable, self.variables)]},
            "time": {"from": "now-1h", "to": "now"},
            "timepicker": {},
            "timezone": "",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    y, number = 0, 0
    for row in rows:
        number += 1
        yield {
            "collapsed": False,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "id": number,
            "panels": [],
            "title": row.title,
            "type": "row",
        }
        y, x, height = y + 1, 0, 0
        for panel in row.panels:
            number += 1
            own = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            if x + panel.width > COLUMNS or (height and own != height):
                y, x = y + height, 0
            height = own
            yield _panel(panel, number, {"h": height, "w": panel.width, "x": x, "y": y})
            x += panel.width
        y += height


def _panel(panel: Panel, number: int, position: Mapping[str, int]) -> dict[str, Any]:
    stat = panel.kind == "stat"
    custom: dict[str, Any] = (
        {} if stat else {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
    )
    options: dict[str, Any] = (
        {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        }
        if stat
        else {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    )
    return {
        "datasource": dict(SOURCE),
        "description": panel.description,
        "fieldConfig": {
            "defaults": {
                "color": {"mode": "thresholds" if stat else "palette-classic"},
                "custom": custom,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": _steps(panel)},
                "unit": panel.unit,
            },
            "overrides": [],
        },
        "gridPos": dict(position),
        "id": number,
        "options": options,
        "targets": [_target(query, letter) for query, letter in zip(panel.queries, "ABCDEFGH", strict=False)],
        "title": panel.title,
        "type": panel.kind,
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    if panel.warning_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.warning_below}]
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.warning_above is not None:
        steps.append({"color": "red", "value": panel.warning_above})
    return steps


def _target(query: Query, letter: str) -> dict[str, Any]:
    return {
        "datasource": dict(SOURCE),
        "editorMode": "code",
        "expr": query.expression,
        "instant": False,
        "legendFormat": query.legend,
        "range": True,
        "refId": letter,
    }


def _data_source() -> dict[str, Any]:
    return {
        "current": {},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": dict(SOURCE),
        "definition": variable.query,
        "hide": 0,
        "includeAll": True,
        "label": variable.label,
        "multi": True,
        "name": variable.name,
        "options": [],
        "query": {"query": variable.query, "refId": "values"},
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "type": "query",
    }


def _alerts_as_annotations() -> dict[str, Any]:
    return {
        "datasource": dict(SOURCE),
        "enable": True,
        "expr": 'ALERTS{alertname=~"Quire.*", alertstate="firing"}',
        "iconColor": "red",
        "name": "Alerts",
        "step": "30s",
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}}",
    }
