"""`quire daemon` with real processes (quire/cli/daemon): double start, stale pids, kill -9, a stop that hangs."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from quire.cli.daemon import actions
from quire.cli.daemon.__main__ import run
from quire.cli.daemon.processes import MARK, birth, is_alive, is_server, serving_pid
from quire.cli.daemon.settings import Settings, SettingsError, settings_of

READY = "print('ready bookie=x', flush=True)"
WAITS = "import signal, time; time.sleep(60)"
HANGS = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGUSR1, signal.SIG_IGN);"
)


class Daemon:
    """A server in the background whose program is a line of Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def settings(self, code: str = "", *, start_timeout_s: float = 30, stop_timeout_s: float = 30) -> Settings:
        environment = {
            "BOOKIE_LOG_DIR": str(self.folder / "logs"),
            "BOOKIE_START_TIMEOUT": str(start_timeout_s),
            "BOOKIE_STOP_TIMEOUT": str(stop_timeout_s),
            "HOSTNAME": "here",
        }
        return replace(settings_of("bookie", environment), program=(sys.executable, "-c", code))

    def start(self, code: str, *, start_timeout_s: float = 30) -> int:
        return actions.start(self.settings(code, start_timeout_s=start_timeout_s), (), self.lines.append)

    def stop(self, *, force: bool = False, stop_timeout_s: float = 30) -> int:
        return actions.stop(self.settings(stop_timeout_s=stop_timeout_s), self.lines.append, force=force)

    def status(self) -> int:
        return actions.status(self.settings(), self.lines.append)

    @property
    def pid(self) -> int | None:
        return serving_pid(self.settings().pid_file)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    if made.pid is not None:
        os.kill(made.pid, signal.SIGKILL)


def test_a_start_waits_for_the_ready_line_and_a_stop_for_the_end(daemon: Daemon) -> None:
    assert daemon.start(f"{READY}; {WAITS}") == 0
    assert daemon.lines[-1] == "ready bookie=x"
    pid = daemon.pid
    assert pid is not None
    assert daemon.settings().pid_file.read_text() == f"{pid}\n"
    assert daemon.status() == 0
    assert f"runs as process {pid}: ready bookie=x" in daemon.lines[-1]
    assert daemon.stop() == 0
    assert not is_alive(pid)
    assert not daemon.settings().pid_file.exists()
    assert daemon.status() == 3
    assert daemon.stop() == 0
    assert daemon.lines[-1] == "no bookie to stop"


def test_a_second_start_is_refused_and_changes_nothing(daemon: Daemon) -> None:
    assert daemon.start(f"{READY}; {WAITS}") == 0
    pid = daemon.pid
    assert daemon.start(f"{READY}; {WAITS}") == 1
    assert f"already runs as process {pid}" in daemon.lines[-1]
    assert daemon.pid == pid
    assert "ready" in daemon.settings().out.read_text(), "the files of the running server are not rotated away"


def test_a_start_and_a_stop_at_the_same_time_are_refused(daemon: Daemon) -> None:
    assert daemon.start(f"{READY}; {WAITS}") == 0
    with actions._alone(daemon.settings().pid_file):
        with pytest.raises(actions.BusyError):
            daemon.start(READY)
        with pytest.raises(actions.BusyError):
            daemon.stop()


def test_a_killed_server_leaves_a_stale_file_that_the_next_start_replaces(daemon: Daemon) -> None:
    assert daemon.start(f"{READY}; {WAITS}") == 0
    pid = daemon.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while is_alive(pid):
        time.sleep(0.005)
    assert daemon.status() == 1
    assert daemon.start(f"{READY}; {WAITS}") == 0
    assert any("is stale" in line for line in daemon.lines)
    assert daemon.pid not in (None, pid)


def test_a_pid_that_another_program_has_by_now_is_stale_and_never_signalled(daemon: Daemon) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS]) as other, ExitStack() as end:
        end.callback(other.kill)
        settings = daemon.settings()
        settings.pid_dir.mkdir(parents=True)
        settings.pid_file.write_text(f"{other.pid}\n")
        assert daemon.status() == 1
        assert daemon.stop() == 0
        assert other.poll() is None
        assert not settings.pid_file.exists()
        settings.pid_file.write_text(f"{other.pid}\n")
        assert daemon.start(f"{READY}; {WAITS}") == 0
        assert other.poll() is None


@pytest.mark.parametrize("content", [b"", b"no number", b"-1", b"99999999999", b"7" * 100])
def test_a_pid_file_that_holds_no_pid_is_stale(daemon: Daemon, content: bytes) -> None:
    settings = daemon.settings()
    settings.pid_dir.mkdir(parents=True)
    settings.pid_file.write_bytes(content)
    assert daemon.pid is None
    assert daemon.status() == 1
    assert daemon.stop() == 0


def test_a_zombie_does_not_run() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process.pid)
    process.wait()


def test_a_process_of_another_user_is_not_called_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> bytes:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    assert is_server(os.getpid(), tmp_path / "any.pid")


def test_a_server_that_ends_at_its_start_is_told_with_the_end_of_its_log(daemon: Daemon) -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(30)]; sys.exit(5)"
    assert daemon.start(code) == 1
    assert "ended with exit code 5" in daemon.lines[-11]
    assert daemon.lines[-10:] == [f"  line {number}" for number in range(20, 30)]
    assert not daemon.settings().pid_file.exists()


def test_a_server_that_is_not_ready_in_time_is_left_running_and_named(daemon: Daemon) -> None:
    assert daemon.start(WAITS, start_timeout_s=0.1) == 0
    assert "is not ready after 0.1 s" in daemon.lines[-1]
    assert daemon.status() == 0
    assert "not ready yet" in daemon.lines[-1]


def test_a_stop_that_hangs_ends_in_time_and_only_force_kills(daemon: Daemon) -> None:
    assert daemon.start(f"{HANGS} {READY}; time.sleep(60)") == 0
    pid = daemon.pid
    assert pid is not None
    assert daemon.stop(stop_timeout_s=0.1) == 1
    assert is_alive(pid)
    assert "still runs" in daemon.lines[-1]
    assert daemon.pid == pid, "the pid file stays, so that a second stop finds it"
    assert daemon.stop(force=True, stop_timeout_s=0.1) == 0
    assert not is_alive(pid)


def test_a_process_without_an_environment_has_not_ended_yet_and_one_that_began_later_is_another() -> None:
    pid = os.getpid()  # not started with a pid file, as a process that is ending has no environment left
    assert not actions._wait_for_end(pid, birth(pid), 0.05, print)
    assert actions._wait_for_end(pid, "1", 0.05, print)


def test_the_server_survives_the_hangup_of_its_terminal(daemon: Daemon) -> None:
    code = "import os, signal, time; os.kill(os.getpid(), signal.SIGHUP);"
    assert daemon.start(f"{code} {READY}; time.sleep(60)") == 0
    assert daemon.pid is not None
    assert os.getsid(daemon.pid) == daemon.pid
    assert signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN, "only the server ignores it"


def test_five_old_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for number in range(8):
        path.write_text(str(number))
        actions.rotate(path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        f"x.log.{age}": str(8 - age) for age in range(1, 6)
    }


def test_the_variables_are_obeyed_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "mine.conf"
    conf.write_text("")
    given = {
        "BOOKIE_CONF": str(conf),
        "BOOKIE_LOG_DIR": str(tmp_path / "l"),
        "BOOKIE_PID_DIR": str(tmp_path / "p"),
        "BOOKIE_START_TIMEOUT": "7",
        "BOOKIE_STOP_TIMEOUT": "8",
        "BOOKIE_ROOT_LOG_LEVEL": "warn",
        "HOSTNAME": "h",
    }
    made = settings_of("bookie", given)
    assert made.arguments(()) == ["bookie", "--conf", str(conf), "--log-level", "warning"]
    assert made.arguments(("--log-level", "debug"))[1:] == ["--conf", str(conf), "--log-level", "debug"]
    assert (made.start_timeout_s, made.stop_timeout_s) == (7, 8)
    assert made.pid_file == tmp_path / "p/bookkeeper-bookie.pid"
    assert made.out == tmp_path / "l/bookkeeper-bookie-h.out"
    for name, value in {
        "BOOKIE_CONF": "/nowhere/x",
        "BOOKIE_STOP_TIMEOUT": "soon",
        "BOOKIE_START_TIMEOUT": "-1",
        "BOOKIE_ROOT_LOG_LEVEL": "LOUD",
    }.items():
        with pytest.raises(SettingsError, match=name):
            settings_of("bookie", {**given, name: value})
    monkeypatch.chdir(tmp_path)
    assert settings_of("bookie", {}).conf is None
    assert settings_of("zookeeper", given).conf is None, "BOOKIE_CONF is not a zoo.cfg"
    assert settings_of("bookie", {"BOOKIE_EXTRA_OPTS": "-Xmx1g"}).not_read == ("BOOKIE_EXTRA_OPTS",)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 1), (["help"], 0), (["restart"], 1), (["stop", "bookie", "-now"], 1), (["start", "kafka"], 1)],
)
def test_a_wrong_command_line_prints_the_usage(arguments: list[str], code: int) -> None:
    out, err = io.StringIO(), io.StringIO()
    assert run(arguments, {}, out, err) == code
    assert ("Usage" in out.getvalue() + err.getvalue()) or "none of" in err.getvalue()


def test_the_mark_is_in_the_environment_of_the_server(daemon: Daemon) -> None:
    assert (
        daemon.start(
            f"import os; open({str(daemon.folder / 'mark')!r}, 'w').write(os.environ[{MARK!r}]); {READY}; {WAITS}"
        )
        == 0
    )
    assert (daemon.folder / "mark").read_text() == str(daemon.settings().pid_file)
