"""quire.servers.broker.config: the original's broker.conf is read unchanged, and each of its settings is
obeyed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quire.metadata.zookeeper.config import SessionExpiredPolicy
from quire.servers.broker.config import BROKER, BrokerConfig
from quire.servers.broker.process import located
from quire.service.errors import ConfigError
from quire.service.original_keys import is_original_key
from quire.service.unsupported import BROKER_RULES

ROOT = Path(__file__).resolve().parents[4]


def loaded(tmp_path: Path, text: str) -> BrokerConfig:
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    return BROKER.load(conf)


def test_the_file_in_conf_is_what_the_code_says() -> None:
    assert (ROOT / "conf/broker.conf").read_text() == BROKER.render()
    assert BROKER.load(ROOT / "conf/broker.conf") == BROKER.build()


def test_every_key_is_decided_once_and_is_one_that_operators_know() -> None:
    fields = set(BROKER.keys())
    assert [name for name in fields if not is_original_key(name) and not name.startswith("quire")] == []
    assert fields & set(BROKER_RULES.aliases) == set()
    assert set(BROKER_RULES.aliases.values()) <= fields


def test_a_configuration_of_the_original_starts_a_broker_of_ours() -> None:
    config = BROKER.load(ROOT / "tests/golden/pulsar/broker.conf")
    store, root = config.metadata.stores()
    assert (store.servers, store.chroot, root) == ((("127.0.0.1", 2281),), "/pulsar", "/ledgers")
    assert store.session_expired_policy is SessionExpiredPolicy.RECONNECT
    assert (config.logs.ensemble_size, config.logs.entries_max, config.logs.retention_minutes) == (2, 10, 60)
    assert config.ledger_client.client.add_timeout_s == 10
    assert config.ledger_client.client.frame_max == 5_253_120, "nettyMaxFrameSizeBytes in Pulsar's bookkeeper.conf"
    assert config.ownership.bundles_default == 4


@pytest.mark.parametrize(
    "line",
    [
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        "brokerServicePortTls=6651",
        "webServicePortTls=8443",
        "advertisedListeners=internal:pulsar://a:6650",
        "managedLedgerDigestType=MAC",
        "managedLedgerOffloadDriver=aws-s3",
        "encryptionRequireOnProducer=true",
        "bookkeeperClientIsolationGroups=g1",
    ],
)
def test_what_would_hurt_if_it_were_passed_over_is_refused_with_the_remedy(tmp_path: Path, line: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError, match=f"broker.conf:2: {key}"):
        loaded(tmp_path, f"clusterName=c\n{line}\n")
    for harmless in ("", "false") if value == "true" else ("",):
        assert loaded(tmp_path, f"clusterName=c\n{key}={harmless}\n").broker.cluster_name == "c"


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "authenticationEnabled=true\nwebServicePort=x\nclusterNam=c\n")
    told = str(caught.value)
    assert "broker.conf:1: authenticationEnabled" in told
    assert "broker.conf:2: webServicePort" in told
    assert "did you mean clusterName?" in told


def test_older_names_are_read_unless_the_newer_one_is_there(tmp_path: Path) -> None:
    old = "zookeeperServers=z:2181/q\nzooKeeperSessionTimeoutMillis=5000\n"
    assert loaded(tmp_path, old).metadata.url == "z:2181/q"
    assert loaded(tmp_path, old).metadata.session_timeout_s == 5
    assert loaded(tmp_path, f"{old}metadataStoreUrl=zk:n:2181\n").metadata.url == "zk:n:2181"


def test_the_last_value_of_a_key_wins_also_where_it_is_refused(tmp_path: Path) -> None:
    assert loaded(tmp_path, "authenticationEnabled=true\nauthenticationEnabled=false\n") == BROKER.build()


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("", "/ledgers"),
        ("zk+hierarchical://a:2181;b:2181/q/ledgers", "/ledgers"),
        ("zk+null://b:2181;a:2181/q/deep/ledgers", "/deep/ledgers"),
        ("metadata-store:zk:a:2181,b:2181/q", "/ledgers"),
    ],
)
def test_bookies_are_found_below_the_same_chroot(uri: str, root: str) -> None:
    config = BROKER.build({"metadataStoreUrl": "zk:a:2181,b:2181/q", "bookkeeperMetadataServiceUri": uri})
    assert config.metadata.stores()[1] == root


@pytest.mark.parametrize(
    "wrong",
    [
        {"bookkeeperMetadataServiceUri": "zk+hierarchical://a:2181/ledgers"},
        {"bookkeeperMetadataServiceUri": "zk+hierarchical://z:2181/q/ledgers"},
        {"configurationMetadataStoreUrl": "zk:z:2181/q"},
        {"metadataStoreUrl": "zk+hierarchical://a:2181/ledgers"},
        {"metadataStoreUrl": "rocksdb:///data"},
        {"zkEnableSecurity": True},
    ],
)
def test_metadata_in_two_places_or_none_is_refused(wrong: dict[str, Any]) -> None:
    config = BROKER.build({"metadataStoreUrl": "zk:a:2181/q", **wrong})
    with pytest.raises(ConfigError):
        config.metadata.stores()


@pytest.mark.parametrize(
    "line",
    [
        "managedLedgerDefaultEnsembleSize=1",
        "managedLedgerDefaultAckQuorum=3",
        "quireZooKeeperAuth=digest:me",
        "quireZooKeeperTlsCaFile=/ca",
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError):
        loaded(tmp_path, line)


def test_what_is_asked_of_bookies_reaches_their_client(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "bookkeeperUseV2WireProtocol=false\nbookkeeperClientSpeculativeReadTimeoutInMillis=50\n"
        "bookkeeperClientRackawarePolicyEnabled=false\nbookkeeperClientHealthCheckEnabled=false\n"
        "bookkeeperEnableStickyReads=false\n",
    )
    client = config.ledger_client.client
    assert (client.protocol, client.reads.speculative_first_s, client.reads.sticky) == ("v3", 0.05, False)
    assert client.placement.policy == "random"
    assert not config.ledger_client.watcher.health_check


def test_a_broker_is_known_by_a_name_that_others_can_reach() -> None:
    assert located(BROKER.build({"clusterName": "c", "advertisedAddress": "b1"})).listen.advertised_host == "b1"
    assert located(BROKER.build({"clusterName": "c", "bindAddress": "10.0.0.7"})).listen.advertised_host == "10.0.0.7"
    assert located(BROKER.build({"clusterName": "c"})).listen.advertised_host != "127.0.0.1"
    assert located(BROKER.build({"clusterName": "c", "webServicePort": 0})).listen.web_port > 0
    with pytest.raises(ConfigError, match="clusterName"):
        located(BROKER.build())


def test_how_the_active_failover_consumer_is_found_reaches_the_broker(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "").broker.failover_consistent_hashing
    assert loaded(tmp_path, "activeConsumerFailoverConsistentHashing=true").broker.failover_consistent_hashing


@pytest.mark.parametrize(
    ("line", "connections", "partitions"),
    [
        ("brokerMaxConnections=0", 0, 4096),
        ("brokerMaxConnections=7", 7, 4096),
        ("maxNumPartitionsPerPartitionedTopic=0", 10_000, 0),
        ("maxNumPartitionsPerPartitionedTopic=-1", 10_000, 0),
        ("maxNumPartitionsPerPartitionedTopic=9", 10_000, 9),
    ],
)
def test_no_limit_is_written_as_the_original_writes_it(
    tmp_path: Path, line: str, connections: int, partitions: int
) -> None:
    config = loaded(tmp_path, line)
    assert config.listen.connections_max == connections
    assert max(config.broker.partitions_per_topic_max, 0) == partitions
