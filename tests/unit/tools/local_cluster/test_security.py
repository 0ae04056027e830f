"""Files and configurations of a secure cluster, before it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.security.authentication.authentication import Authentication
from quire.client.authentication import token_file
from quire.ledger.bookies.authentication import read_credentials
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.broker.security import authentication_of, credentials_of
from quire.servers.cluster_config import SHELL
from quire.servers.zookeeper.probe import probe_of
from quire.service.password_files import read_users, user_of
from quire.world.real_tls import TlsFiles
from tests.support.secrets import Secrets
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan, conf_text
from tools.local_cluster.security import ADMIN, CLIENT, Security
from tools.local_cluster.security import BROKER as BROKER_ROLE

PLAN = Plan(zookeepers=3, bookies=1, brokers=1, recoveries=1, secure=True)


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    return LocalCluster.make(tmp_path / "cluster", PLAN)


@pytest.fixture
def security(cluster: LocalCluster) -> Security:
    assert cluster.security is not None
    return cluster.security


def test_a_broker_reads_its_file_and_has_no_port_without_tls(cluster: LocalCluster, security: Security) -> None:
    [node] = cluster.nodes(Kind.BROKER)
    conf = BROKER.load(node.conf(cluster.folder))
    listen = conf.listen
    assert (listen.broker_port, listen.web_port) == (None, None)
    assert (listen.broker_port_tls, listen.web_port_tls) == node.ports
    TlsFiles(conf.tls.options(), server_side=True)
    for options in (conf.client_tls.options(), conf.ledger_tls.options()):
        assert options is not None
        assert options.check_host
        TlsFiles(options, server_side=False)
    store, _ = conf.metadata.stores()
    assert store.secure
    assert store.tls is not None
    assert cluster.service_url == f"pulsar+ssl://{node.address}"
    assert cluster.web_urls[0].startswith("https://")
    authentication = authentication_of(conf.authentication, conf.authorization)
    assert isinstance(authentication, Authentication)
    own = credentials_of(conf.authentication)
    assert own is not None
    assert own.data() == security.token(BROKER_ROLE).read_bytes().strip()
    for role in (ADMIN, BROKER_ROLE, CLIENT):
        headers = {name.lower(): value for name, value in token_file(security.token(role)).headers().items()}
        principal = authentication.of_request(headers, None, 0)
        assert principal.role == role
    assert set(conf.authorization.super_users) == {ADMIN, BROKER_ROLE}


def test_bookies_require_certificate_and_password_and_the_others_have_them(
    cluster: LocalCluster, security: Security
) -> None:
    [bookie] = cluster.nodes(Kind.BOOKIE)
    conf = BOOKIE.load(bookie.conf(cluster.folder))
    assert conf.tls.required
    assert conf.tls.require_certificate
    users = read_users((security.folder / "bookies.htpasswd").read_bytes())
    known = read_credentials(security.password.read_bytes())
    assert user_of(users, known.payload()) == known.user
    [recovery] = cluster.nodes(Kind.RECOVERY)
    cluster.shell_conf.write_text(conf_text(security.shell_settings()))
    for each in (AUTORECOVERY.load(recovery.conf(cluster.folder)), SHELL.load(cluster.shell_conf)):
        assert each.auth.password_file == str(security.password)
        options = each.tls.client()
        assert options is not None
        assert options.check_host
        TlsFiles(options, server_side=False)
        assert each.metadata.tls_settings is not None


def test_zookeepers_have_tls_among_themselves_and_no_other_port(cluster: LocalCluster) -> None:
    for node in cluster.nodes(Kind.ZOOKEEPER):
        conf = node.conf(cluster.folder)
        lines = dict(line.split("=", 1) for line in conf.read_text().splitlines())
        assert "clientPort" not in lines
        assert (lines["secureClientPort"], lines["sslQuorum"], lines["ssl.clientAuth"]) == (
            str(node.port),
            "true",
            "need",
        )
        assert probe_of(conf).context is not None


def test_no_configuration_has_a_secret_and_only_the_owner_reads_them(cluster: LocalCluster, security: Security) -> None:
    secrets = Secrets(security)
    for path in (node.conf(cluster.folder) for node in cluster.nodes()):
        assert secrets.found_in(path.read_text()) == []
    for path in security.folder.iterdir():
        if secrets.found_in(path.read_text(errors="replace")) or path.name == "token.private":
            assert path.stat().st_mode & 0o077 == 0, path
    assert secrets.found_in(security.token(CLIENT).read_text()), "the search finds what is there"


def test_a_new_certificate_takes_the_place_of_the_one_before(security: Security) -> None:
    names = [security.certificate("zk1"), security.key("zk1"), security.store("zk1")]
    before = [path.read_bytes() for path in names]
    security.issue("zk1")
    assert all(path.read_bytes() != old for path, old in zip(names, before, strict=True))
    assert security.store("zk1").read_bytes() == names[1].read_bytes() + names[0].read_bytes()
    assert not [path for path in security.folder.iterdir() if path.name.endswith(".new")]


def test_what_is_secure_stays_so_for_the_next_command(cluster: LocalCluster) -> None:
    found = LocalCluster.find(cluster.folder)
    assert found.security == cluster.security
    assert found.service_url == cluster.service_url
    plain = LocalCluster.make(cluster.folder.parent / "plain", Plan(zookeepers=1, bookies=1))
    assert plain.security is None
    assert not (plain.folder / "security").exists()
