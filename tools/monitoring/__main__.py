"""Write conf/grafana and conf/prometheus, or compare them: `python -m tools.monitoring [--write]`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from quire.service.programs.command_line import run_command
from tools.monitoring.alert_table import ALERTS
from tools.monitoring.alerts import rules_text
from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.example import EXAMPLE, scrape_text

ROOT = Path(__file__).resolve().parents[2]
RULES = "quire.rules.yml"


def generated() -> Mapping[str, str]:
    """Return the content of each generated file, by its path within the checkout."""
    made = {f"conf/grafana/{dashboard.uid}.json": dashboard.text() for dashboard in DASHBOARDS}
    made[f"conf/prometheus/{RULES}"] = rules_text(ALERTS)
    made["conf/prometheus/prometheus.yml"] = scrape_text(EXAMPLE, rules=RULES, interval="15s")
    return made


def stale(root: Path) -> list[str]:
    """Return the paths of files that are not as generated, are missing, or are not generated any more."""
    made = generated()
    found = [name for name, text in made.items() if not (root / name).exists() or (root / name).read_text() != text]
    for folder in ("conf/grafana", "conf/prometheus"):
        found += [
            str(path.relative_to(root)) for path in (root / folder).glob("*") if str(path.relative_to(root)) not in made
        ]
    return sorted(found)


def monitoring(
    write: Annotated[bool, typer.Option("--write", help="Write the files instead of comparing them.")] = False,
) -> int:
    if write:
        for name, text in generated().items():
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    found = stale(ROOT)
    for name in found:
        print(f"{name} is not as generated: run python -m tools.monitoring --write")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(run_command(monitoring, name="python -m tools.monitoring", text=__doc__))
