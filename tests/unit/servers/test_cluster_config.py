from __future__ import annotations

from pathlib import Path

import pytest

from quire.metadata.errors import InvalidConnectStringError
from quire.metadata.layouts import FLAT, HIERARCHICAL
from quire.servers.cluster_config import SHELL, ClusterConfig, load_config
from quire.service.errors import ConfigError
from quire.wire.bookkeeper.entry import DigestType

GOLDEN = Path(__file__).parents[2] / "golden/bookkeeper/db/bk1.conf"


def load(tmp_path: Path, text: str) -> ClusterConfig:
    path = tmp_path / "bk.conf"
    path.write_text(text)
    return load_config(path)


def test_a_configuration_of_the_original_loads() -> None:
    config = load_config(GOLDEN)
    assert config.metadata_service == "zk+hierarchical://127.0.0.1:2281/db/ledgers"
    assert config.connect_string.ledgers_root == "/db/ledgers"
    assert config.layout is HIERARCHICAL
    assert config.journals == ("bk1/journal/current",)
    assert config.ledgers == config.indexes == ("bk1/ledgers/current",)


def test_zk_servers_name_the_cluster_too(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "zkServers=h1:2181,h2:2182\nzkLedgersRootPath=/bk/ledgers\nzkTimeout=5000\n"
        "ledgerManagerFactoryClass=org.apache.bookkeeper.meta.FlatLedgerManagerFactory\n",
    )
    assert config.zookeeper.servers == (("h1", 2181), ("h2", 2182))
    assert config.zookeeper.session_timeout_s == 5.0
    assert config.connect_string.ledgers_root == "/bk/ledgers"
    assert config.layout is FLAT


@pytest.mark.parametrize(
    ("uri", "chroot", "root"),
    [
        ("zk+null://h:2181/ledgers", "/", "/ledgers"),
        ("metadata-store:zk:h:2181/pulsar", "/pulsar", "/ledgers"),
        ("metadata-store:h:2181", "/", "/ledgers"),
    ],
)
def test_every_form_of_the_uri_is_taken(uri: str, chroot: str, root: str) -> None:
    config = SHELL.build({"metadataServiceUri": uri})
    assert (config.zookeeper.chroot, config.connect_string.ledgers_root) == (chroot, root)
    assert config.zookeeper.servers == (("h", 2181),)
    assert config.layout is None


def test_another_metadata_store_is_refused() -> None:
    with pytest.raises(InvalidConnectStringError):
        _ = SHELL.build({"metadataServiceUri": "etcd:http://h:2379"}).zookeeper


def test_what_a_bookie_alone_is_told_does_not_matter(tmp_path: Path) -> None:
    text = "journalDirectories=j1,j2\nautoRecoveryDaemonEnabled=true\nnumReadWorkerThreads=many\nquireMaxLongPolls=x\n"
    assert load(tmp_path, text).journals == ("j1/current", "j2/current")


def test_a_misspelt_key_is_refused_for_it_might_have_named_the_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such key: 'metadataServiceURI' \(did you mean metadataServiceUri\?\)"):
        load(tmp_path, "metadataServiceURI=zk+hierarchical://prod:2181/ledgers\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nofile: cannot be read"):
        load_config(tmp_path / "nofile")


def test_credentials_digest_and_folders(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "quireZooKeeperAuth=digest:bk:secret\nzkEnableSecurity=true\ndigestType=MAC\npasswd=pw\n"
        "journalDirectory=old\nledgerDirectories=l1,l2\nindexDirectories=i1,i2\n",
    )
    assert config.zookeeper.auth == (("digest", "bk:secret"),)
    assert (config.digest, config.password) == (DigestType.HMAC, "pw")
    assert config.journals == ("old/current",)
    assert config.indexes == ("i1/current", "i2/current")


def test_index_folders_go_with_ledger_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one for each of ledgerDirectories"):
        load(tmp_path, "ledgerDirectories=l1,l2\nindexDirectories=i1\n")
