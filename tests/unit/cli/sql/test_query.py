"""`quire sql`: flags, exit codes, and errors without a cluster. tests/unit/tables has the queries."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from quire.cli.messages.flags import add_command
from quire.cli.sql import query
from quire.cli.sql.query import TEXT, SqlFlags, run_sql
from quire.spark.errors import SourceUnavailableError
from quire.tables import sql
from quire.tables.errors import QueryError

DEAD = "pulsar://127.0.0.1:1"


def run(*arguments: str) -> int:
    """Run the command as a shell does, and return its exit code."""
    app = typer.Typer()
    add_command(app, "sql", SqlFlags, run_sql, TEXT)
    try:
        app(list(arguments), prog_name="quire sql")
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("a command ends with an exit code")


@pytest.mark.parametrize(
    ("flag", "expected"),
    [((), "a  b\n-  -\n1  x\n(1 row)\n"), (("--csv",), "a,b\n1,x\n"), (("--json",), '{"a":1,"b":"x"}\n')],
)
def test_three_forms(capsys: pytest.CaptureFixture[str], flag: tuple[str, ...], expected: str) -> None:
    assert run("SELECT 1 AS a, 'x' AS b", *flag) == 0
    assert capsys.readouterr().out == expected


def test_wrong_use_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (("SELECT 1", "--json", "--csv"), "give --json or --csv, and not both"),
        (("selec",), 'syntax error at or near "selec"'),
        (("SELECT 1 x, 2 x", "--json"), "two columns are named x"),
        (("FROM orders", "--start", "yesterday"), "option 'start' is 'yesterday'"),
        (("FROM orders", "--decode", "avro"), "option 'decode' is 'avro': give one of none, schema"),
        (("FROM orders", "--read-via", "pigeon"), "give one of auto, broker, bookies"),
        (("FROM orders", "--parallel", "0"), "option 'parallel' is '0'"),
        (("FROM orders", "--auth-plugin", "tls"), "cannot authenticate by tls: give a token or a password"),
    ):
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.startswith("quire sql: ")
        assert error.count("\n") == 1


def test_without_the_extra_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("quire.spark.checks._is_there", lambda name: name != "duckdb")
    assert run("SELECT 1") == 2
    assert capsys.readouterr().err == (
        "quire sql: quire needs duckdb >= 2.0, which is not installed here;"
        " install it with: pip install 'quire-broker[sql]'\n"
    )


def test_an_unreachable_cluster_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise SourceUnavailableError("pulsar://x cannot be reached:\n  planted")

    monkeypatch.setattr(sql, "run_query", refuse)
    assert run("FROM orders") == 1
    assert capsys.readouterr().err == "quire sql: pulsar://x cannot be reached: planted\n"


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sql, "run_query", interrupt)
    assert run("SELECT 1") == 130


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, {"service.url": "pulsar://127.0.0.1:6650"}),
        ({"service_url": "pulsar://h"}, {"service.url": "pulsar://h"}),
        ({"admin_url": "http://h:1/"}, {"admin.url": "http://h:1"}),
        ({"auth_plugin": "token", "auth_params": "token:abc"}, {"authToken": "abc"}),
        ({"auth_plugin": "basic", "auth_params": '{"userId":"u","password":"p"}'}, {"authPassword": "u:p"}),
        ({"trust_cert_file": "ca.pem"}, {"tlsTrustCertsFilePath": "ca.pem"}),
        ({"tls_cert_file": "c", "tls_key_file": "k"}, {"tlsCertificateFilePath": "c", "tlsKeyFilePath": "k"}),
        ({"tls_allow_insecure": True}, {"tlsAllowInsecureConnection": "true"}),
        ({"tls_hostname_verification": False}, {"tlsHostnameVerificationEnable": "false"}),
        ({"read_via": "bookies"}, {"readVia": "bookies"}),
    ],
)
def test_flags_of_the_cluster_are_options_of_the_source(flags: dict[str, Any], expected: dict[str, str]) -> None:
    found = query._options(SqlFlags(query="", **flags))
    assert found | expected == found
    assert ("admin.url" in found) == ("admin_url" in flags)


def test_start_and_end_are_those_of_every_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def record(given: Any, **more: Any) -> Any:
        made.append((given.starting.timestamp_ms, given.ending.timestamp_ms, given.decoding.by_schema, more))
        raise QueryError("enough")

    monkeypatch.setattr("quire.tables.topic_rows.TopicRows", record)
    times = ("--start", "1970-01-01T00:00:01Z", "--end", "5000", "--decode", "schema", "--parallel", "2")
    assert run("FROM orders", *times, "--service-url", DEAD) == 2
    assert made == [(1000, 5000, True, {"parallel": 2})]
