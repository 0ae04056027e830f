"""`scripts/chaos` as a test: a short run, and with `--full` one of five minutes. docs/testing.md lists its checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.secrets import Secrets
from tools.chaos.__main__ import main
from tools.local_cluster.security import Security

LOG_MAX = 64 << 20
"""Bytes of a log that is searched; entry logs, which end in the same way, are longer."""
pytestmark = pytest.mark.cluster


def test_a_few_faults_lose_nothing_that_was_acknowledged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Any rate will do: how many a slow machine gets through is no matter of what is lost.
    load = ["--rate", "150", "--rate-min", "1", "--topics", "10"]
    # Five is the first half of the deck, in which a broker is killed: connections break.
    words = ["--minutes", "0.15", "--faults", "5", *load, "--zookeepers", "1"]
    _run(tmp_path, capsys, *words, faults_min=3)


@pytest.mark.full
def test_five_minutes_of_faults_lose_nothing_that_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _run(tmp_path, capsys, "--minutes", "5", faults_min=30)
    assert found["rate"] >= 2000
    assert {(each["group"], each["how"]) for each in found["faults"]} == {
        (group, how) for group in ("broker", "bookie", "ZooKeeper", "auditor") for how in ("SIGKILL", "SIGSTOP")
    }


@pytest.mark.full
def test_a_minute_of_faults_on_a_secure_cluster_loses_nothing_that_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--rate", "600", "--rate-min", "100"]
    _run(tmp_path, capsys, "--minutes", "1", "--secure", *load, faults_min=6)
    security = Security(tmp_path / "chaos" / "cluster")
    secrets = Secrets(security)
    for log in (tmp_path / "chaos").rglob("*log"):
        if log.is_file() and log.stat().st_size < LOG_MAX:
            assert secrets.found_in(log.read_text(errors="replace")) == [], log


def _run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str, faults_min: int) -> dict[str, Any]:
    code = main(["--folder", str(tmp_path / "chaos"), "--keep", *words])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "0 acknowledged lost, 0 order violations, 0 copies missing" in said.out
    found: dict[str, Any] = json.loads((tmp_path / "chaos" / "report.json").read_text())
    assert len(found["faults"]) >= faults_min
    assert found["receipts"] == found["sent"] == found["delivered"]
    assert found["broken"] == {}
    assert found["copies"]["good"]
    assert found["errors"] == []
    return found
