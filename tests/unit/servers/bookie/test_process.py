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
from quire.servers.bookie import process as command
from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.host_name import interface_address, own_host
from quire.servers.bookie.located import located
from quire.servers.bookie.process import (
    BookieStartError,
    Ready,
    RegistrationError,
    exit_code,
    run_bookie,
    serve,
)
from quire.servers.errors import PortError
from quire.service.errors import ConfigError
from quire.world.real import real_world
from quire.world.unwrap import leaves
from tests.support.refusals import refuses


def test_relative_folders_are_absolute_for_us_and_named_as_configured_in_the_cookie() -> None:
    config = located(
        BOOKIE.build(
            {"advertisedAddress": "h", "journalDirectories": ("bk1/journal",), "ledgerDirectories": ("bk1/ledgers",)}
        ),
        "/l",
    )
    assert config.bookie.journal_directory == os.path.join(os.getcwd(), "bk1/journal")
    assert config.bookie.journal_directory.removeprefix(config.bookie.root + "/") == "bk1/journal"
    assert config.bookie.ledgers_root == "/l"


def test_a_loopback_address_needs_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1")
    refuses(ConfigError, lambda: own_host(BOOKIE.build().process), "advertisedAddress")
    assert own_host(BOOKIE.build({"allowLoopback": True}).process) == "127.0.1.1"


def test_the_host_is_known_by_address_name_or_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "10.1.2.3")
    monkeypatch.setattr(socket, "getfqdn", lambda: "one.example.org")
    assert own_host(BOOKIE.build().process) == "10.1.2.3"
    assert own_host(BOOKIE.build({"useHostNameAsBookieID": True}).process) == "one.example.org"
    assert own_host(BOOKIE.build({"useHostNameAsBookieID": True, "useShortHostName": True}).process) == "one"
    assert own_host(BOOKIE.build({"listeningInterface": "lo", "allowLoopback": True}).process) == "127.0.0.1"
    refuses(ConfigError, lambda: interface_address("nosuch0"), "listeningInterface=nosuch0")


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
    config = BOOKIE.build({"advertisedAddress": "h", "journalDirectories": ("/j",), "ledgerDirectories": ("/l",)})
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
                "journalDirectories": (str(tmp_path / "journal"),),
                "ledgerDirectories": (str(tmp_path / "ledgers"),),
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
