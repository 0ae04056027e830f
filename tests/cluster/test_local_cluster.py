"""Every subcommand of `scripts/cluster`, on real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pulsar
import pytest

from tools.local_cluster.__main__ import main
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.state import pid_of

pytestmark = pytest.mark.cluster


def test_a_cluster_is_brought_up_hurt_healed_grown_and_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"

    def cluster(*words: str) -> tuple[int, str]:
        code = main(["--folder", str(folder), *words])
        return code, capsys.readouterr().out

    def conditions() -> dict[str, str]:
        _, text = cluster("status", "--json")
        return {node["name"]: node["condition"] for node in json.loads(text)["nodes"]}

    try:
        code, said = cluster("up", "--bookies", "1", "--recoveries", "0", "--set", "bookie.gcWaitTime=1234000")
        assert code == 0, said
        assert "gcWaitTime=1234000" in (folder / "bookie1" / "bk_server.conf").read_text()
        all_running = {"zk1": "running", "bookie1": "running", "broker1": "running"}
        assert conditions() == all_running
        status = json.loads(cluster("status", "--json")[1])
        _publish(status["serviceUrl"], "before")

        assert cluster("pause", "broker1") == (0, "broker1 paused\n")
        assert conditions() == all_running | {"broker1": "paused"}
        assert cluster("resume", "broker1")[0] == 0
        bookie_id = next(node["address"] for node in status["nodes"] if node["name"] == "bookie1")
        assert cluster("kill", bookie_id, "broker1") == (0, "bookie1 killed\nbroker1 killed\n")
        assert cluster("status")[0] == 1
        assert conditions() == all_running | {"bookie1": "down", "broker1": "down"}
        assert cluster("kill", "bookie1")[0] == 2, "what does not run cannot be killed"
        assert cluster("start", "bookie1", "broker1")[0] == 0
        assert cluster("start", "broker1")[0] == 2, "what runs cannot be started"
        _publish(status["serviceUrl"], "after")

        assert cluster("add-bookie")[0] == 0
        assert conditions() == all_running | {"bookie2": "running"}
        assert "ready bookie=" in cluster("logs", "bookie2")[1]
        assert cluster("up")[0] == 2, "there is one already"

        pids = [node["pid"] for node in json.loads(cluster("status", "--json")[1])["nodes"]]
        assert cluster("down")[0] == 0
        assert not folder.exists()
        assert not any(left.alive for pid in pids if (left := pid_of(pid)) is not None)
    finally:
        if (folder / "cluster.json").exists():
            LocalCluster.find(folder).abandon()


def _publish(url: str, text: str) -> None:
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    client.create_producer("greetings").send(text.encode())
    client.close()
