"""Files of a cluster before it is started."""

from __future__ import annotations

from pathlib import Path

from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan


def test_a_broker_may_have_ports_of_its_own_choice(tmp_path: Path) -> None:
    made = LocalCluster.make(tmp_path / "cluster", Plan(brokers=2), ports={"broker1": (6650, 8080)})
    first, second = made.nodes(Kind.BROKER)
    assert first.ports == (6650, 8080)
    assert not set(second.ports) & {6650, 8080}
    conf = first.conf(made.folder).read_text()
    assert "brokerServicePort=6650\n" in conf
    assert "webServicePort=8080\n" in conf
    assert LocalCluster.find(made.folder).state.node("broker1").ports == (6650, 8080)
