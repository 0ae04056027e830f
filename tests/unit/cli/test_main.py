"""quire.cli.main and its output"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from quire.cli.contents import CONTENTS
from quire.cli.main import app
from quire.servers.addresses import Addresses, ready_line
from quire.servers.standalone.config import STANDALONE

main_command: Any = typer.main.get_command(app)


def quire(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[3]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from quire.cli.main import main; main()"
    command = [sys.executable, "-c", code, str(root), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def test_help_is_a_table_of_contents_with_a_line_for_each_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headings are in the order of use, and no line is longer than a terminal of 80 columns takes."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = quire("--help", cwd=tmp_path)
    assert shown.returncode == 0
    found: dict[str, list[list[str]]] = {}
    for line in shown.stdout.splitlines():
        text = line.strip("\u2502\u256d\u256e\u2570\u256f\u2500 ")
        if line.startswith("\u256d"):
            found[text] = rows = []
        elif text and found:
            rows.append([*re.split(r" {2,}", text, maxsplit=1)])
    del found["Options"]
    assert found == {section: [[name, about] for name, about in lines.items()] for section, lines in CONTENTS.items()}
    assert sorted(name for lines in CONTENTS.values() for name in lines) == sorted(
        main_command.list_commands(typer.Context(main_command))
    )


REFUSED = "admin topics list public/default --url http://127.0.0.1:1"
"""Command that makes a request, to a port that refuses it."""
MODULES_MAX = {
    "--help": 400,
    "admin --help": 400,
    "admin topics --help": 430,
    "admin topics delete x --dry-run": 260,
    REFUSED: 275,
}
SERVERS = {"trio", "broker", "bookie", "structlog", "google.protobuf", "rocksdict", "starlette"}
NETWORK = {"httpx2", "ssl", "quire.cli.admin.connection", "quire.cli.admin.table", "quire.client"}


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        ("--help", SERVERS | NETWORK | {"quire.cli.admin.verbs", "quire.cli.doctor", "quire.cli.shell"}),
        ("admin --help", SERVERS | NETWORK | {"quire.cli.admin.verbs"}),
        ("admin topics --help", SERVERS | {"httpx2", "ssl", "quire.cli.admin.table.namespaces"}),
        ("admin topics delete x --dry-run", SERVERS | {"quire.cli.admin.table.namespaces"}),
        (REFUSED, SERVERS | {"httpx2", "httpcore2", "anyio", "h2", "attr", "rich", "cryptography", "quire.world"}),
    ],
)
def test_a_command_loads_only_what_it_needs(words: str, unwanted: set[str], tmp_path: Path) -> None:
    """Imports are nearly all of the start: their number is bounded, because a time would depend on the machine."""
    root = Path(__file__).resolve().parents[3]
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from quire.cli.main import main\n"
        "try: main()\n"
        f"except SystemExit as end: assert (end.code or 0) == {3 if words == REFUSED else 0}, end.code\n"
        "print('loaded', *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(root), *words.split()]
    home = {"HOME": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=home)
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stderr.splitlines()[-1].split()[1:])
    assert unwanted & loaded == set()
    assert len(loaded) < MODULES_MAX[words]


def test_operations_are_commands_of_quire(tmp_path: Path) -> None:
    shown = quire("operations", "--help", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert " operations [OPTIONS] COMMAND [ARGS]..." in shown.stdout
    for name in ("verify-replicas", "recover-bookie", "decommission-bookie", "replace-disk", "rolling-restart"):
        assert name in shown.stdout
    wrong = quire("operations", "recover-bookie", "--dry-run", cwd=tmp_path)
    assert (wrong.returncode, "Missing argument" in wrong.stderr) == (2, True)


def test_a_wrong_configuration_is_one_line_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "my.conf").write_text("brokerServicePorr=1\n")
    ran = quire("standalone", "--conf", "my.conf", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        "quire standalone: my.conf:1: no such key: 'brokerServicePorr' (did you mean brokerServicePort?)\n"
    )


def test_a_log_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    ran = quire("standalone", "--log-level", "loud", cwd=tmp_path)
    assert ran.returncode == 2
    assert "'loud' is no log level" in ran.stderr


def test_the_ready_line_has_the_addresses() -> None:
    addresses = Addresses(("127.0.0.1", 6650), ("::1", 8080))
    assert ready_line(addresses, data="/d", pid=7, start_s=0.416) == (
        "ready broker=pulsar://127.0.0.1:6650 web=http://[::1]:8080 data=/d pid=7 start_s=0.42"
    )
    assert Addresses(("h", 1), None).web_url == ""


@pytest.mark.parametrize(
    ("bind", "advertised", "host"),
    [("0.0.0.0", "", "127.0.0.1"), ("::", "", "127.0.0.1"), ("10.0.0.7", "", "10.0.0.7"), ("0.0.0.0", "box", "box")],
)
def test_lookups_answer_a_host_that_clients_can_reach(bind: str, advertised: str, host: str) -> None:
    assert STANDALONE.build({"bindAddress": bind, "advertisedAddress": advertised}).listen.advertised_host == host


def test_a_process_without_standard_streams_gives_their_numbers_to_nothing_else(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    report = tmp_path / "report"
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from quire.cli.standard_streams import open_missing; open_missing()\n"
        "from quire.service import log; log.configure('info'); log.get_logger('x').error('lost')\n"
        "print('out', flush=True); print('err', file=sys.stderr, flush=True)\n"
        "opened = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT); os.write(opened, str(opened > 2).encode())\n"
    )
    command = f'exec {sys.executable} -c "$0" {root} {report} <&- >&- 2>&-'
    ran = subprocess.run(["sh", "-c", command, code], cwd=tmp_path, check=False, timeout=60)
    assert ran.returncode == 0
    assert report.read_text() == "True"


@pytest.mark.parametrize(("key", "option"), [("brokerServicePort", "--port"), ("webServicePort", "--web-port")])
def test_a_taken_port_is_named_with_its_key_and_address(key: str, option: str, tmp_path: Path) -> None:
    ports = {"--port": "0", "--web-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports[option] = str(taken.getsockname()[1])
        given = [part for pair in ports.items() for part in pair]
        ran = quire("standalone", "--bind-address", "127.0.0.1", "--data-dir", "data", *given, cwd=tmp_path)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(
        f"quire standalone: {key}={ports[option]}: cannot listen on 127.0.0.1:{ports[option]}: Address"
    )


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("quire ad", ["admin"]),
        ("quire admin topics create-p", ["create-partitioned-topic"]),
        ("quire admin tenants list --tls-c", ["--tls-cert-file"]),
        (
            "quire admin namespaces set-backlog-quota a/b --policy producer",
            ["producer_exception", "producer_request_hold"],
        ),
        ("quire admin tenants list --context pr", ["prod"]),
    ],
)
def test_shells_complete_commands_verbs_options_their_words_and_contexts(
    words: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts = tmp_path / "quire/contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text('[contexts."prod"]\nurl = "http://p:8080"\n')
    contexts.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("_QUIRE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit) as end:
        app(prog_name="quire")
    assert (end.value.code, sorted(capsys.readouterr().out.split())) == (0, offered)
