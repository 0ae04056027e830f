"""Running processes and their connections, from /proc."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

CLOSED_STATES = frozenset({"06", "07"})
"""TIME_WAIT and CLOSE in /proc/net/tcp: no process has these any more."""


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    command: str


def processes() -> list[Process]:
    """Return all running processes, without those that only wait to be reaped."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                # (the name, in brackets, may hold anything)
                state, parent, group, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                found.append(Process(int(folder.name), int(parent), int(group), int(session), command))
    return found


def of_session(session: int) -> list[Process]:
    """Return the processes of one session: all descendants of a process started with start_new_session, in any
    group."""
    return [process for process in processes() if process.session == session]


def states(pids: list[int]) -> set[str]:
    """Return the state letters of the processes that have not ended; T is stopped."""
    found = set()
    for pid in pids:
        try:
            found.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found - {"Z", "X"}


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def sockets_to(ports: set[int], pids: list[int]) -> list[str]:
    """Open TCP connections from these processes to one of the ports on this machine, a line each."""
    owners: dict[str, int] = {}
    for pid in pids:
        try:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    owners[target[8:-1]] = pid
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not Path(table).exists():
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            remote, state, inode = fields[2], fields[3], fields[9]
            port = int(remote.rpartition(":")[2], 16)
            if port in ports and state not in CLOSED_STATES and inode in owners:
                found.append(f"process {owners[inode]} to port {port}, state {state}")
    return found
