"""The process that a pid file names: whether it runs, and whether it is the server that was started with that file.

A number in a pid file says little: after a kill or a restart of the machine another program may have it. A server in
the background therefore has the path of its pid file in its environment, which the kernel shows (/proc/PID/environ).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MARK: Final = "QUIRE_DAEMON_PID_FILE"
"""Variable of the environment of a server in the background."""
PID_TEXT_MAX: Final = 64
_BIRTH: Final = 22 - 3
"""Place of the start time behind the state, which is the third field (proc(5))."""


def read_pid(pid_file: Path) -> int | None:
    """Return the number in a pid file; None if there is no file, or no number in it. Raises OSError."""
    try:
        with pid_file.open("rb") as file:
            text = file.read(PID_TEXT_MAX).strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 31 else None


def serving_pid(pid_file: Path) -> int | None:
    """Return the process that was started with this pid file and still runs; None: there is none, the file is stale."""
    pid = read_pid(pid_file)
    return pid if pid is not None and is_server(pid, pid_file) else None


def is_server(pid: int, pid_file: Path, proc: Path = Path("/proc")) -> bool:
    """Return whether a process runs and was started with this pid file."""
    if not is_alive(pid, proc):
        return False
    try:
        environment = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except PermissionError:
        return True  # of another user: it cannot be told apart, so it is not called stale
    except OSError:
        return not proc.is_dir()  # a system without /proc: the number is all there is
    return f"{MARK}={pid_file}".encode() in environment


def is_alive(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process exists, and is not only the remainder of one that has ended (a zombie)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    fields = _fields(pid, proc)
    return fields[0] not in ("Z", "X") if fields else not proc.is_dir()


def birth(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return when a process began, in ticks since the system's start: two processes of one number differ in it. None:
    there is no such process, or no /proc.

    A process that is ending has no environment any more, so `is_server` cannot tell that it is still there.
    """
    fields = _fields(pid, proc)
    return fields[_BIRTH] if len(fields) > _BIRTH else None


def _fields(pid: int, proc: Path) -> list[str]:
    """Return the fields of a process's state line from the state on (proc(5)); none if there is no such process."""
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
