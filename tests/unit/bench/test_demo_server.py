"""tools.demo.server, with a few lines of Python in the server's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.refusals import refuses
from tools.demo import server as demo_server
from tools.demo.server import DemoError, Server

SERVE = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print('ready x', flush=True); signal.pause()"


class Scripted(Server):
    script = SERVE

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.script]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Scripted]:
    made = Scripted(tmp_path)
    yield made
    made.abandon()


def test_it_starts_again_after_a_kill_and_stops_when_asked(server: Scripted) -> None:
    server.start()
    server.kill()
    server.start()
    server.stop()
    assert len(server.start_s) == 2


def test_the_command_names_ports_and_data(tmp_path: Path) -> None:
    made = Server(tmp_path)
    command = made.command()
    assert command[1:4] == ["-m", "quire.cli.main", "standalone"]
    for option, value in (("--port", made.port), ("--web-port", made.web_port), ("--data-dir", tmp_path / "data")):
        assert command[command.index(option) + 1] == str(value)


def test_a_server_that_ends_while_starting_is_told_with_the_end_of_its_log(server: Scripted) -> None:
    server.script = "import sys; print('no room', file=sys.stderr); sys.exit(3)"
    refuses(DemoError, lambda: server.start(), r"(?s)ended with 3 while starting.*no room")


def test_a_server_that_is_never_ready_is_given_up(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_server, "READY_S", 0.3)
    server.script = "import signal; print('starting', flush=True); signal.pause()"
    refuses(DemoError, lambda: server.start(), "not ready after")


def test_a_server_that_died_before_the_kill_is_a_failure(server: Scripted) -> None:
    server.script = "print('ready x', flush=True)"
    server.start()
    assert server._process is not None
    server._process.wait(5)
    refuses(DemoError, lambda: server.kill(), "ended by itself with 0")


def test_a_server_that_ends_badly_on_sigterm_is_a_failure(server: Scripted) -> None:
    server.script = SERVE.replace("sys.exit(0)", "sys.exit(4)")
    server.start()
    refuses(DemoError, lambda: server.stop(), "ended with 4 on SIGTERM")


def test_errors_and_tracebacks_in_the_log_are_found(server: Scripted) -> None:
    server.log_path.write_text("timestamp=t level=info event=a\ntimestamp=t level=error event=b\nTraceback (most\n")
    assert server.errors() == ["timestamp=t level=error event=b", "Traceback (most"]
