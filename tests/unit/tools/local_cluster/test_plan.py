"""Plan of a local cluster."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from quire.servers.broker.config import BROKER
from tools.local_cluster.plan import Addresses, Kind, Plan, conf_text, settings_of

FOLDER = Path("/c")


def ports(number: int) -> list[int]:
    numbers = count(20_000)
    return [next(numbers) for _ in range(number)]


def made(plan: Plan):
    nodes = plan.nodes(ports)
    addresses = Addresses(
        zookeepers=tuple(node for node in nodes if node.kind is Kind.ZOOKEEPER),
        brokers=tuple(node for node in nodes if node.kind is Kind.BROKER),
    )
    return nodes, addresses


def test_every_process_has_a_name_and_ports_of_its_own():
    nodes, _ = made(Plan(zookeepers=3, bookies=4, brokers=2, recoveries=2))
    assert [node.name for node in nodes] == [
        *("zk1", "zk2", "zk3"),
        *("bookie1", "bookie2", "bookie3", "bookie4"),
        *("broker1", "broker2", "recovery1", "recovery2"),
    ]
    all_ports = [port for node in nodes for port in node.ports]
    assert len(set(all_ports)) == len(all_ports)


def test_a_cluster_without_brokers_has_no_address_for_clients():
    _, addresses = made(Plan(brokers=0))
    assert addresses.service_url == ""
    assert made(Plan(brokers=2))[1].service_url.count("127.0.0.1:") == 2


def test_one_zookeeper_stands_alone_and_three_know_each_other():
    for number in (1, 3):
        plan = Plan(zookeepers=number)
        nodes, addresses = made(plan)
        settings = settings_of(nodes[0], plan, addresses, FOLDER)
        assert [key for key in settings if str(key).startswith("server.")] == (
            [] if number == 1 else ["server.1", "server.2", "server.3"]
        )
        assert settings["dataDir"] == FOLDER / "zk1"


def test_a_brokers_file_is_one_that_a_broker_reads(tmp_path):
    plan = Plan(brokers=2, conf={Kind.BROKER: {"managedLedgerMaxEntriesPerLedger": 5000}})
    nodes, addresses = made(plan)
    broker = next(node for node in nodes if node.name == "broker2")
    (tmp_path / "broker.conf").write_text(conf_text(settings_of(broker, plan, addresses, FOLDER)))
    config = BROKER.load(tmp_path / "broker.conf")
    assert (config.listen.broker_port, config.listen.web_port) == broker.ports
    assert (config.logs.ensemble_size, config.logs.write_quorum, config.logs.ack_quorum) == (3, 3, 2)
    assert config.metadata.stores()[0].servers == (("127.0.0.1", addresses.zookeepers[0].port),)


def test_what_is_asked_for_wins_and_only_for_its_kind():
    plan = Plan(conf={Kind.BOOKIE: {"zkTimeout": 7000}})
    nodes, addresses = made(plan)
    by_name = {node.name: settings_of(node, plan, addresses, FOLDER) for node in nodes}
    assert by_name["bookie1"]["zkTimeout"] == 7000
    assert by_name["recovery1"]["zkTimeout"] == 3000


@pytest.mark.parametrize(
    "wrong", [{"zookeepers": 2}, {"bookies": 0}, {"brokers": -1}, {"recoveries": -1}, {"log_level": "loud"}]
)
def test_what_makes_no_cluster_is_refused(wrong):
    with pytest.raises(ValueError, match="--"):
        Plan(**wrong)


def test_one_bookie_takes_all_copies_there_can_be():
    plan = Plan(bookies=1)
    nodes, addresses = made(plan)
    settings = settings_of(next(node for node in nodes if node.kind is Kind.BROKER), plan, addresses, FOLDER)
    assert [settings[f"managedLedgerDefault{what}"] for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")] == [1] * 3
