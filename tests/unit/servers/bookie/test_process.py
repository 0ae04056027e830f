"""`quire bookie`: its configuration, and the exit codes of its failures."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path

import pytest
import trio

from bookie.errors import BookieError, CookieMismatchError
from quire.metadata.clusters import init_new_cluster
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.zookeeper.store import SessionExpiredPolicy, Tls
from quire.servers.bookie import process as command
from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.process import (
    BookieStartError,
    Ready,
    RegistrationError,
    exit_code,
    interface_address,
    located,
    own_host,
    run_bookie,
    serve,
    zookeeper_config,
)
from quire.servers.errors import PortError
from quire.service.errors import ConfigError
from quire.world.real import real_world
from quire.world.unwrap import leaves


@pytest.mark.parametrize(
    ("uri", "servers", "chroot", "root"),
    [
        ("zk+hierarchical://h1:2181;h2:2182/ledgers", (("h1", 2181), ("h2", 2182)), "/", "/ledgers"),
        ("zk+flat://h1/a/b", (("h1", 2181),), "/", "/a/b"),
        ("zk+null://h1:2181;h2:2182/ledgers", (("h1", 2181), ("h2", 2182)), "/", "/ledgers"),
        ("metadata-store:zk:h1:2181,h2:2182/pulsar", (("h1", 2181), ("h2", 2182)), "/pulsar", "/ledgers"),
        ("metadata-store:h1:2181", (("h1", 2181),), "/", "/ledgers"),
    ],
)
def test_every_form_of_a_metadata_uri_is_understood(
    uri: str, servers: tuple[tuple[str, int], ...], chroot: str, root: str
) -> None:
    config, found = zookeeper_config(BOOKIE.build({"metadataServiceUri": uri}))
    assert (config.servers, config.chroot, found) == (servers, chroot, root)


def test_timeouts_policy_and_rights_reach_the_store() -> None:
    config, _ = zookeeper_config(
        BOOKIE.build(
            {
                "zkTimeout": 7000,
                "zkRetryBackoffStartMs": 100,
                "zkRetryBackoffMaxMs": 300,
                "zookeeperSessionExpiredPolicy": "shutdown",
                "zkEnableSecurity": True,
                "quireZooKeeperAuth": "digest:me:my:secret",
            }
        )
    )
    assert (config.session_timeout_s, config.retry_first_s, config.retry_max_s) == (7, 0.1, 0.3)
    assert config.session_expired_policy is SessionExpiredPolicy.SHUTDOWN
    assert (config.secure, config.auth, config.tls) == (True, (("digest", "me:my:secret"),), None)


def test_tls_to_zookeeper_takes_its_files_from_the_configuration() -> None:
    config, _ = zookeeper_config(
        BOOKIE.build(
            {
                "quireZooKeeperTls": True,
                "quireZooKeeperTlsCaFile": "/ca.pem",
                "quireZooKeeperTlsCertificateFile": "/own.pem",
                "quireZooKeeperTlsKeyFile": "/own.key",
            }
        )
    )
    assert config.tls == Tls(ca_file="/ca.pem", certificate_file="/own.pem", key_file="/own.key")
    config, _ = zookeeper_config(BOOKIE.build({"quireZooKeeperTls": True}))
    assert config.tls == Tls()


@pytest.mark.parametrize("uri", ["etcd://h/ledgers", "zk+hierarchical://h1:2181", "zk+odd://h/l", "file:x"])
def test_other_stores_and_malformed_uris_are_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="metadataServiceUri"):
        zookeeper_config(BOOKIE.build({"metadataServiceUri": uri}))


def test_an_advertised_address_is_taken_as_it_is() -> None:
    config = located(
        BOOKIE.build({"advertisedAddress": "bookie.example", "journalDirectories": "/j", "ledgerDirectories": "/l"}),
        "/ledgers",
    )
    assert (config.id, config.bookie.root) == ("bookie.example:3181", "")


def test_relative_folders_are_absolute_for_us_and_named_as_configured_in_the_cookie() -> None:
    config = located(
        BOOKIE.build(
            {"advertisedAddress": "h", "journalDirectories": "bk1/journal", "ledgerDirectories": "bk1/ledgers"}
        ),
        "/l",
    )
    assert config.bookie.journal_directory == os.path.join(os.getcwd(), "bk1/journal")
    assert config.bookie.journal_directory.removeprefix(config.bookie.root + "/") == "bk1/journal"
    assert config.bookie.ledgers_root == "/l"


def test_an_index_folder_that_is_the_ledgers_own_is_none() -> None:
    config = BOOKIE.build(
        {
            "advertisedAddress": "h",
            "journalDirectories": "/j",
            "ledgerDirectories": "/l",
            "indexDirectories": "/l/",
        }
    )
    assert located(config, "/ledgers").bookie.index_directory == ""


def test_a_loopback_address_needs_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1")
    with pytest.raises(ConfigError, match="advertisedAddress"):
        own_host(BOOKIE.build().process)
    assert own_host(BOOKIE.build({"allowLoopback": True}).process) == "127.0.1.1"


def test_the_host_is_known_by_address_name_or_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.1.2.3")
    monkeypatch.setattr(socket, "getfqdn", lambda: "one.example.org")
    assert own_host(BOOKIE.build().process) == "10.1.2.3"
    assert own_host(BOOKIE.build({"useHostNameAsBookieID": True}).process) == "one.example.org"
    assert own_host(BOOKIE.build({"useHostNameAsBookieID": True, "useShortHostName": True}).process) == "one"
    assert own_host(BOOKIE.build({"listeningInterface": "lo", "allowLoopback": True}).process) == "127.0.0.1"
    with pytest.raises(ConfigError, match="listeningInterface=nosuch0"):
        interface_address("nosuch0")


def test_an_id_that_no_bookie_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="bookieId"):
        located(BOOKIE.build({"advertisedAddress": "h", "bookieId": "readonly"}), "/ledgers")


def test_only_permitted_users_may_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    command.check_user(BOOKIE.build().process)
    command.check_user(BOOKIE.build({"permittedStartupUsers": ("you", "me")}).process)
    with pytest.raises(ConfigError, match="permittedStartupUsers"):
        command.check_user(BOOKIE.build({"permittedStartupUsers": ("you",)}).process)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CookieMismatchError("x"), 5),
        (BookieStartError("x"), 5),
        (SessionExpiredError("x"), 3),
        (RegistrationError("x"), 4),
        (MetadataUnavailableError("x"), 4),
        (OSError(98, "taken"), 2),
        (ExceptionGroup("", [BookieError("x"), ExceptionGroup("", [SessionExpiredError("y")])]), 3),
        (ValueError("ours"), None),
        (ExceptionGroup("", [BookieError("x"), ValueError("ours")]), None),
    ],
)
def test_exit_codes_are_the_originals(error: BaseException, code: int | None) -> None:
    assert exit_code(error) == code


def test_a_wrong_configuration_is_exit_code_1_with_the_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text("journalWriteData=false\n")
    assert run_bookie(conf, "error") == 1
    assert "journalWriteData=false" in capsys.readouterr().err
    assert run_bookie(tmp_path / "missing", "error") == 1


def test_the_ready_line_tells_where_it_is_and_what_it_keeps() -> None:
    config = BOOKIE.build({"advertisedAddress": "h", "journalDirectories": "/j", "ledgerDirectories": "/l"})
    assert Ready(located(config, "/ledgers"), ("h", 3181), ("h", 8080)).line(7) == (
        "ready bookie=h:3181 address=h:3181 http=http://h:8080 journal=/j ledgers=/l pid=7"
    )


@pytest.mark.real_clock
@pytest.mark.parametrize("key", ["bookiePort", "httpServerPort"])
async def test_a_taken_port_is_named_with_its_key_and_address(key: str, tmp_path: Path) -> None:
    """The bookie ends with exit code 2, as for any port that it cannot bind."""
    told: list[Ready] = []

    async def main(config: BookieServerConfig) -> None:
        world, store = real_world(), MemoryStore(MemoryTree())
        await init_new_cluster(store, "/ledgers", rng=world.rng)
        await serve(world, config, store, ready=told.append, stop=trio.Event())

    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        config = BOOKIE.build(
            {
                "advertisedAddress": "127.0.0.1",
                "allowEphemeralPorts": True,
                "bookiePort": 0,
                "journalDirectories": str(tmp_path / "journal"),
                "ledgerDirectories": str(tmp_path / "ledgers"),
                "httpServerEnabled": True,
                "httpServerPort": 0,
                key: port,
            }
        )
        with pytest.raises(ExceptionGroup) as ended:
            await main(located(config, "/ledgers"))
    [cause] = leaves(ended.value)
    assert isinstance(cause, PortError)
    assert str(cause).startswith(f"{key}={port}: cannot listen on 0.0.0.0:{port}: Address")
    assert exit_code(ended.value) == 2
    assert not told
