"""quire.service.unsupported and original_keys: every key of the originals has one class in each process, and files with
the originals' values start."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.cluster_config import load_config
from quire.servers.standalone.config import STANDALONE
from quire.service.log import Event
from quire.service.original_conf import Fate
from quire.service.original_keys import (
    BOOKKEEPER,
    PULSAR,
    OriginalKey,
    is_original_key,
    is_original_value,
    keys_of_product,
    original_keys,
)
from quire.service.process_conf import Process
from quire.service.unsupported import RULES, listing
from tests.support.dialogues import Dialogue, dialogues
from tests.unit.servers.conf_files import Reader

PROCESSES: dict[str, Process[Any]] = {each.name: each for each in (STANDALONE, BROKER, BOOKIE, AUTORECOVERY)}
FIELDS = {name: {*process.keys(), *process.others} for name, process in PROCESSES.items()}
LOADERS = {name: process.load for name, process in PROCESSES.items()}
PRODUCTS = {
    "standalone": (PULSAR, BOOKKEEPER),
    "broker": (PULSAR,),
    "bookie": (BOOKKEEPER,),
    "autorecovery": (BOOKKEEPER,),
}
DECIDED = {
    "allowAutoTopicCreationType": "non-partitioned",  # the class has the name of an enum's value
    "journalDirectories": "/tmp/bk-txn",  # our folders are relative
    "ledgerDirectories": "/tmp/bk-data",
}


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("-")[0].split("."))


def known(process: str, product_version: dict[str, str]) -> list[OriginalKey]:
    """Return the keys of a version of each product that a file of the process may have."""
    return [
        key
        for product in PRODUCTS[process]
        for key in keys_of_product(product)
        if not key.name.endswith("*")
        and version(key.first_version) <= version(product_version[product]) <= version(key.last_version)
    ]


@pytest.mark.parametrize("process", RULES)
def test_every_key_of_the_originals_is_obeyed_or_has_a_rule_in_every_process(process: str) -> None:
    rules, fields = RULES[process], FIELDS[process]
    for key in (key for product in PRODUCTS[process] for key in keys_of_product(product)):
        obeyed = key.name in fields or key.name in rules.aliases
        assert obeyed or rules.find(key.name) is not None, f"{key.name} has no class in {process}"


def test_a_standalone_server_passes_over_nothing_that_a_broker_refuses() -> None:
    harmless = {"enableRunBookieTogether"}  # it has its bookie in its process
    passed_over = [
        name
        for name, rule in RULES["broker"].by_name.items()
        if rule.fate is not Fate.HARMLESS
        and name.removesuffix("*") not in FIELDS["standalone"]
        and ((found := RULES["standalone"].find(name)) is None or found.fate is Fate.HARMLESS)
    ]
    assert set(passed_over) == harmless


@pytest.mark.parametrize("process", RULES)
def test_every_rule_has_a_reason_and_is_of_a_key_that_exists(process: str) -> None:
    names = [*original_keys(), *RULES[process].aliases]
    ours = {"ledgerDirectory", "quireClientPasswordFile", *RULES["autorecovery"].aliases}
    for name, rule in RULES[process].by_name.items():
        beginning = name.removesuffix("*")
        assert (
            name in ours
            or name == "bookkeeper_tls*"
            or any(each == name or (each.startswith(beginning) and name != beginning) for each in names)
        ), name
        assert rule.reason
        assert (rule.asks is not None) == (rule.fate is Fate.REFUSED)


@pytest.mark.parametrize(
    "versions",
    [
        {PULSAR: "4.2.4", BOOKKEEPER: "4.17.3"},
        {PULSAR: "4.0.8", BOOKKEEPER: "4.18.0"},
        {PULSAR: "3.0.7", BOOKKEEPER: "4.16.6"},
        {PULSAR: "2.8.4", BOOKKEEPER: "4.14.7"},
    ],
    ids=lambda versions: "-".join(versions.values()),
)
@pytest.mark.parametrize("process", LOADERS)
def test_a_file_with_every_key_of_a_version_at_each_of_its_values_starts(
    tmp_path: Path, process: str, versions: dict[str, str]
) -> None:
    keys = known(process, versions)
    assert len(keys) > 200
    path = tmp_path / "original.conf"
    of_key = [
        [(key.name, DECIDED.get(key.name, value)) for value in (*key.defaults, *key.shipped)]
        for key in {key.name: key for key in keys}.values()
    ]
    for lines in zip_longest(*of_key):
        pairs = [pair for pair in lines if pair is not None]
        if process == "standalone":
            pairs = [
                (name, "1" if name.startswith("managedLedgerDefault") and "Quorum" in name else value)
                for name, value in pairs
            ]
            pairs = [(name, "1" if name == "managedLedgerDefaultEnsembleSize" else value) for name, value in pairs]
        elif process == "broker":
            pairs = [pair for pair in pairs if not pair[0].startswith("managedLedgerDefault") or pair[1] != "1"]
        path.write_text("".join(f"{name}={value}\n" for name, value in pairs))
        LOADERS[process](path)


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "unsupported.txt"))
def test_what_asks_for_what_is_not_obeyed_is_refused(dialogue: Dialogue, tmp_path: Path) -> None:
    dialogue.check(Reader(dialogue.command.name, tmp_path).answer)


@pytest.mark.parametrize(
    ("process", "text", "without_effect", "at_defaults"),
    [
        ("standalone", "numIOThreads=2\nmaxTenants=0\nbrokerServicePort=1\n", "numIOThreads", "maxTenants"),
        ("broker", "numIOThreads=2\nmaxTenants=0\nbrokerServicePort=1\n", "numIOThreads", "maxTenants"),
        (
            "bookie",
            "bookiePort=1\nnumIOThreads=2\ndbStorage_rocksDB_logLevel=info\n",
            "numIOThreads",
            "dbStorage_rocksDB_logLevel",
        ),
        (
            "autorecovery",
            "bookiePort=1\nnumIOThreads=2\nquireDiskReserveMb=1\n",
            "numIOThreads quireDiskReserveMb",
            None,
        ),
    ],
)
def test_each_server_names_the_keys_that_it_does_not_obey(
    tmp_path: Path, log_events: list[Event], process: str, text: str, without_effect: str, at_defaults: str | None
) -> None:
    path = tmp_path / "its.conf"
    path.write_text(text)
    LOADERS[process](path)
    [told] = [event for event in log_events if "does not obey" in event["event"]]
    assert (told["level"], told["server"]) == ("warning", process)
    assert (told.get("without_effect"), told.get("at_defaults")) == (without_effect, at_defaults)


def test_the_shell_says_nothing_of_keys_that_are_for_servers(tmp_path: Path, log_events: list[Event]) -> None:
    path = tmp_path / "its.conf"
    path.write_text("numIOThreads=2\nnumReadWorkerThreads=many\nbookiePort=7\n")
    assert load_config(path).port == 7
    assert log_events == []


@pytest.mark.parametrize(
    "name",
    [
        # Of the configurations of the official suites, and older than 2.8.
        "clientLibraryVersionCheckAllowUnversioned",
        "loadBalancerPlacementStrategy",
        "loadBalancerBrokerUnderloadedThresholdPercentage",
        "loadBalancerBrokerComfortLoadLevelPercentage",
        "loadBalancerNamespaceBundleSplitIntervalMinutes",
        "globalZookeeperServers",
        # Of bookies.
        "serverNumAcceptorThreads",
        "httpServerKeyStorePath",
        "dlog.bkcEnsembleSize",
        "storageserver.grpc.port",
        "defaultRocksdbConf",
    ],
)
def test_older_and_rarer_names_are_known(tmp_path: Path, name: str) -> None:
    assert is_original_key(name)
    path = tmp_path / "standalone.conf"
    path.write_text(f"{name}=\n")
    STANDALONE.load(path)


def test_facts_are_of_both_products_with_versions_and_defaults() -> None:
    (quota,) = original_keys()["backlogQuotaDefaultLimitGB"]
    assert (quota.product, quota.defaults, quota.shipped) == (PULSAR, ("-1",), ("10",))
    assert {key.product for key in original_keys()["advertisedAddress"]} == {PULSAR, BOOKKEEPER}
    assert is_original_value("diskUsageThreshold", "0.950")
    assert not is_original_value("diskUsageThreshold", "0.9")
    assert not is_original_key("brokerServicePorr")
    assert len(list(keys_of_product(PULSAR))) > 550
    assert len(list(keys_of_product(BOOKKEEPER))) > 300


def test_the_listing_has_what_is_not_obeyed_and_why() -> None:
    rows = [line.split("\t") for line in listing()]
    assert ["broker.conf", "maxTenants", "no such limit"] in rows
    assert ["standalone.conf", "maxTenants", "no such limit"] in rows
    assert ["standalone.conf", "maxNamespacesPerTenant", "no such limit"] in rows
    assert all(len(row) == 3 and all(row) for row in rows)
    assert not [row for row in rows if row[1] == "numIOThreads"]
