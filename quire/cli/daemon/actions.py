"""start, stop and status of a server in the background. Blocking; every wait has a limit.

Exit codes as of bookkeeper-daemon.sh: start is 0 if the server runs, 1 if it runs already or ended. stop is 0 if
nothing runs (any more), 1 if the server did not end in time. status, which the original does not have, is as of init
scripts (LSB): 0 runs, 1 does not run and left a pid file, 3 does not run.

Source: BookKeeper's bookkeeper-daemon.sh (order of steps, five old .out files, -force).
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from quire.cli.daemon.processes import MARK, birth, is_alive, read_pid, serving_pid
from quire.cli.daemon.settings import Settings

RUNS: Final = 0
FAILED: Final = 1
LEFT_PID_FILE: Final = 1
DOES_NOT_RUN: Final = 3
OLD_FILES_MAX: Final = 5
KILL_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.05
REPORT_S: Final = 5.0
SHOWN_LINES: Final = 10
SHOWN_BYTES: Final = 16 << 10
Tell = Callable[[str], None]


class BusyError(Exception):
    """Another start or stop of this server is under way."""


def start(settings: Settings, more: tuple[str, ...], tell: Tell) -> int:
    """Start the server, wait until it is ready, and return the exit code. Raises BusyError, OSError."""
    settings.log_dir.mkdir(parents=True, exist_ok=True)
    settings.pid_dir.mkdir(parents=True, exist_ok=True)
    for name in settings.not_read:
        tell(f"{name} is for a server in Java, and is not read")
    with _alone(settings.pid_file):
        pid = serving_pid(settings.pid_file)
        if pid is not None:
            tell(f"{settings.server} already runs as process {pid}: stop it first")
            return FAILED
        if settings.pid_file.exists():
            tell(f"{settings.pid_file} is stale ({read_pid(settings.pid_file)} is not this server): replaced")
        for path in (settings.out, settings.log):
            rotate(path)
        tell(f"starting {settings.server}: log {settings.log}")
        process = _spawn(settings, more)
        _write_pid(settings.pid_file, process.pid)
    code = _wait_until_ready(settings, process, tell)
    process.returncode = code  # it outlives this command, which does not wait for its end
    return code


def stop(settings: Settings, tell: Tell, *, force: bool) -> int:
    """Stop the server, and return the exit code. Raises BusyError, OSError."""
    if not settings.pid_file.exists():
        tell(f"no {settings.server} to stop")
        return RUNS
    with _alone(settings.pid_file):
        pid = serving_pid(settings.pid_file)
        if pid is None:
            tell(f"no {settings.server} to stop: {settings.pid_file} is stale, removed")
            settings.pid_file.unlink(missing_ok=True)
            return RUNS
        tell(f"stopping {settings.server} (process {pid})")
        began = birth(pid)
        _signal(pid, signal.SIGTERM)
        if not _wait_for_end(pid, began, settings.stop_timeout_s, tell):
            # As the original's jstack: what the server is doing goes into its log.
            _signal(pid, signal.SIGUSR1)
            tell(f"not stopped after {settings.stop_timeout_s:g} s; its tasks are in {settings.log}")
            if not force:
                tell(f"{settings.server} still runs as process {pid}: `stop {settings.server} -force` kills it")
                return FAILED
            _signal(pid, signal.SIGKILL)
            if not _wait_for_end(pid, began, KILL_TIMEOUT_S, tell):
                tell(f"process {pid} did not end {KILL_TIMEOUT_S:g} s after SIGKILL: it waits for a disk (see dmesg)")
                return FAILED
            tell("killed; nothing acknowledged is lost, and the next start replays the journal")
        settings.pid_file.unlink(missing_ok=True)
        tell("stopped")
        return RUNS


def status(settings: Settings, tell: Tell) -> int:
    """Print whether the server runs, and return the exit code. Raises OSError."""
    pid = serving_pid(settings.pid_file)
    if pid is not None:
        ready = _ready_line(settings.out)
        tell(f"{settings.server} runs as process {pid}: {ready or f'not ready yet, see {settings.log}'}")
        return RUNS
    if settings.pid_file.exists():
        tell(f"{settings.server} does not run: {settings.pid_file} is stale. The log of its end: {settings.log}")
        return LEFT_PID_FILE
    tell(f"{settings.server} does not run")
    return DOES_NOT_RUN


def rotate(path: Path) -> None:
    """Rename a file to NAME.1, that to NAME.2, and so on; the fifth is deleted."""
    if not path.exists():
        return
    for number in range(OLD_FILES_MAX - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


# --- the process


def _spawn(settings: Settings, more: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, without a terminal, deaf to its hangup."""
    environment = {**os.environ, MARK: str(settings.pid_file)}
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with settings.out.open("ab") as out, settings.log.open("ab") as log:
            return subprocess.Popen(
                [*settings.program, *settings.arguments(more)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
    finally:
        signal.signal(signal.SIGHUP, before)


def _write_pid(path: Path, pid: int) -> None:
    """Write a pid file, whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(f"{pid}\n")
    temporary.replace(path)


def _wait_until_ready(settings: Settings, process: subprocess.Popen[bytes], tell: Tell) -> int:
    deadline = time.monotonic() + settings.start_timeout_s
    while time.monotonic() < deadline:
        if (line := _ready_line(settings.out)) is not None:
            tell(line)
            return RUNS
        if (code := process.poll()) is not None:
            tell(f"{settings.server} ended with exit code {code}; the end of {settings.log}:")
            for each in _tail(settings.log) or _tail(settings.out):
                tell(f"  {each}")
            # A start that came after this process ended owns the file.
            if read_pid(settings.pid_file) == process.pid:
                settings.pid_file.unlink(missing_ok=True)
            return FAILED
        time.sleep(POLL_S)
    tell(
        f"{settings.server} runs as process {process.pid}, and is not ready after {settings.start_timeout_s:g} s "
        f"(BOOKIE_START_TIMEOUT): see {settings.log}"
    )
    return RUNS


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal, unless the process has just ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_for_end(pid: int, began: str | None, timeout_s: float, tell: Tell) -> bool:
    """Return whether the process that has this number since `began` (`birth`) ended in time."""
    begun = reported = time.monotonic()
    while is_alive(pid) and birth(pid) == began:
        now = time.monotonic()
        if now - begun >= timeout_s:
            return False
        if now - reported >= REPORT_S:
            reported = now
            tell(f"waiting for its end, {now - begun:.0f} s so far")
        time.sleep(POLL_S)
    return True


def _ready_line(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            lines = file.read(SHOWN_BYTES).decode(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return None
    return next((line.strip() for line in lines if line.startswith("ready ") and line.endswith("\n")), None)


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - SHOWN_BYTES))
        return file.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]


@contextmanager
def _alone(pid_file: Path) -> Iterator[None]:
    """Hold a lock against a start or a stop at the same time. Raises BusyError."""
    with pid_file.with_name(f"{pid_file.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another start or stop with {pid_file} is under way") from None
        yield
