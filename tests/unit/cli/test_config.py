"""`quire config explain KEY`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from quire.cli.main import app


def explained(key: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["config", "explain", key])
    return done.exit_code, done.stdout, done.stderr


def test_a_key_of_ours_is_told_with_everything_that_is_declared() -> None:
    code, said, _ = explained("brokerServicePort")
    assert code == 0
    assert said.splitlines() == [
        "brokerServicePort",
        "  Port of the binary protocol. 0 takes a free one.",
        "    obeyed by  quire standalone (standalone.conf), quire broker (broker.conf)",
        "    type       whole number",
        "    default    6650",
        "    bounds     0 to 65535",
    ]


def test_a_key_that_servers_have_otherwise_is_told_for_each() -> None:
    _, said, _ = explained("journalMaxSizeMB")
    assert said.count("  Size of a journal file at which the next one is begun.") == 2
    assert "    default    256\n    bounds     at least 1\n" in said
    assert "    default    2048\n    bounds     1 to 2048\n" in said
    assert said.count("    unit       megabytes") == 2


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("numIOThreads", "quire broker (broker.conf): no effect with any value (one event loop, no pools of threads)"),
        (
            "maxTenants",
            "quire broker (broker.conf): not obeyed; accepted only with the originals' default (no such limit)",
        ),
        ("zookeeperServers", "quire broker (broker.conf): an older name of metadataStoreUrl"),
        (
            "flushInterval",
            "quire autorecovery (bk_server.conf): of the bookie that reads the same file; it has no effect",
        ),
        ("flushInterval", "    obeyed by  quire standalone (standalone.conf), quire bookie (bk_server.conf)"),
    ],
)
def test_of_a_key_that_a_server_does_not_obey_it_is_told_what_becomes_of_it(key: str, line: str) -> None:
    code, said, _ = explained(key)
    assert (code, said.splitlines()[0]) == (0, key)
    assert line in said.splitlines()


def test_a_key_that_is_refused_is_told_with_the_remedy() -> None:
    assert (
        "refused with a value that needs the missing feature (brokers do not authenticate"
        in explained("authenticationEnabled")[1]
    )


def test_an_unknown_key_is_an_error_with_the_nearest_names() -> None:
    code, said, error = explained("brokerServicePrt")
    assert (code, said) == (2, "")
    assert (
        error
        == "quire config: no such key: brokerServicePrt; did you mean brokerServicePort or brokerServicePortTls?\n"
    )
    assert explained("zzzzzzzzzzzzzz")[2] == "quire config: no such key: zzzzzzzzzzzzzz\n"
