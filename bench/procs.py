"""Kernel figures of processes: CPU time and memory."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """Return `pid` and all its descendants."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def cpu_s(pids: list[int]) -> float:
    """Return user and system seconds used so far by these processes."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def scheduled_s(pids: list[int]) -> float:
    """Return the seconds that the living threads of these processes have run; `cpu_s` counts ticks of 10 ms."""
    return sum(_of_threads(pids).values()) / 1e9


def _of_threads(pids: list[int]) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                found[pid, task.parent.name] = int(task.read_text().split()[0])
            except OSError:
                continue
    return found


def read_bytes(pids: list[int]) -> int:
    """Return the bytes that these processes have read by system calls, from files and pipes."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/io").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("rchar:"))
    return total


class Used:
    """CPU that processes use from the making of this object on. A thread that ends meanwhile does not count."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._before = _of_threads(pids)

    @property
    def seconds(self) -> float:
        before = self._before
        return sum(ns - before.get(thread, 0) for thread, ns in _of_threads(self._pids).items()) / 1e9


def pss_mb(pids: list[int]) -> float:
    """Return the proportional set size of these processes, in MB: shared pages count once."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024
