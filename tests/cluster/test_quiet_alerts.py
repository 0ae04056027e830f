"""scripts/quiet-alerts with real processes: it fails when a bookie is killed under the load.

The rules have their shipped expressions, without durations. tests/unit/tools/monitoring/test_quiet.py has its other
exit codes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.debian import installed
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan
from tools.monitoring import quiet
from tools.monitoring.alert_table import ALERTS
from tools.monitoring.load import Counts, quiet_load

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.real_clock]


async def load_with_a_kill(made: list[LocalCluster], service_url: str, counts: Counts) -> None:
    """Kill a bookie of the only cluster made, and go on with the load."""
    [cluster] = made
    cluster.kill(cluster.nodes(Kind.BOOKIE)[-1])
    await quiet_load(service_url, counts)


def test_a_bookie_that_is_killed_under_the_load_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[LocalCluster] = []
    whole = quiet.scraped_cluster

    def kept(folder: Path, plan: Plan) -> tuple[LocalCluster, dict[str, list[str]]]:
        cluster, targets = whole(folder, plan)
        made.append(cluster)
        return cluster, targets

    program = Path(installed("prometheus", "prometheus"))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(quiet, "scraped_cluster", kept)
    monkeypatch.setattr(quiet, "quiet_load", partial(load_with_a_kill, made))
    monkeypatch.setattr(quiet, "ALERTS", [replace(alert, seconds=0) for alert in ALERTS])
    assert quiet.main(["0.4", "--folder", str(tmp_path)]) == 1
    assert "QuireBookieDown" in capsys.readouterr().out.splitlines()[-1]
