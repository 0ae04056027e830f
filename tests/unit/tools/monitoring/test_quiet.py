"""scripts/quiet-alerts: an alert that fires fails the run, and a run that proves nothing is not valid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tools.local_cluster.errors import ClusterError
from tools.monitoring import quiet
from tools.monitoring.alert_table import ALERTS
from tools.monitoring.load import Counts

ARGUMENTS = ("0.005", "--folder")
"""A run of 0.3 s."""


class FakePrometheus:
    """Prometheus with these alerts, by their state."""

    def __init__(self, firing: list[str], pending: list[str], down: list[str]) -> None:
        self._by_state = {"firing": firing, "pending": pending}
        self._down = down
        self.rules = ""

    def down(self) -> list[str]:
        return self._down

    def alerts(self, state: str) -> list[dict[str, str]]:
        return [{"alertname": name} for name in self._by_state[state]]


class FakeCluster:
    """A cluster without processes."""

    service_url = "pulsar://127.0.0.1:1"

    def __init__(self, error: str) -> None:
        self._error = error
        self.abandoned = False

    def up(self, say: Any) -> None:
        if self._error:
            raise ClusterError(self._error)

    def abandon(self) -> None:
        self.abandoned = True


def run(
    patch: pytest.MonkeyPatch,
    folder: Path,
    *,
    firing: tuple[str, ...] = (),
    pending: tuple[str, ...] = (),
    down: tuple[str, ...] = (),
    published: int = 1000,
    consumed: int = 1000,
    error: str = "",
) -> int:
    """Run with a cluster and a Prometheus that are not real; return the exit code."""
    server, cluster = FakePrometheus(list(firing), list(pending), list(down)), FakeCluster(error)

    async def load(service_url: str, counts: Counts) -> None:
        counts.published, counts.consumed = published, consumed
        await trio.sleep_forever()

    @contextmanager
    def started(program: str, folder: Path, targets: object, rules: str, *, interval: str) -> Iterator[FakePrometheus]:
        assert all(f"alert: {alert.name}\n" in rules for alert in ALERTS)
        assert all(f"for: {alert.seconds}s" in rules for alert in ALERTS if alert.seconds == 30), "shipped durations"
        yield server

    patch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    patch.setattr("quire.service.log.configure", lambda *args: None)
    patch.setattr(quiet, "scraped_cluster", lambda folder, plan: (cluster, {}))
    patch.setattr(quiet, "prometheus", started)
    patch.setattr(quiet, "quiet_load", load)
    patch.setattr(quiet, "LOOK_S", 0.1)
    patch.setattr(quiet, "SETTLE_S", 0.0)
    code = quiet.main([*ARGUMENTS, str(folder)])
    assert cluster.abandoned, "the processes are ended"
    return code


def test_a_run_in_which_nothing_fires_passes_and_names_what_was_pending(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, pending=("QuireNoAuditor",)) == 0
    assert "firing: none; pending at some time: QuireNoAuditor" in capsys.readouterr().out


def test_an_alert_that_fires_fails_the_run_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, firing=("QuireBookieDown",), down=("bookie: refused",)) == 1
    assert "firing: QuireBookieDown;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"down": ("http://b/metrics: refused",)}, "not scraped: http://b/metrics: refused"),
        ({"published": 2, "consumed": 2}, "2 messages published"),
        ({"consumed": 899}, "899 of 1000 messages consumed"),
        ({"error": "no Java"}, "no Java"),
    ],
)
def test_a_run_that_proves_nothing_is_not_valid(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fault: dict[str, Any],
    reason: str,
) -> None:
    assert run(monkeypatch, tmp_path, **fault) == 2
    assert reason in capsys.readouterr().err


def test_a_machine_without_prometheus_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert quiet.main(["1"]) == 2
    assert "scripts/debian-packages prometheus" in capsys.readouterr().err
