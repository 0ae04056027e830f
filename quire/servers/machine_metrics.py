"""Metrics of the process and of its certificates, the same for each kind of server.

The names with `process_` are those of Prometheus' own client libraries. They are read from /proc at each scrape, which
takes microseconds; where there is no /proc they are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from quire.service.metrics import Metrics, Samples

_PROC: Final = Path("/proc")
_GROUPS: Final = Path("/sys/fs/cgroup")
_NO_LIMIT: Final = 1 << 60
"""Limits from here on mean that there is none: cgroup version 1 shows a huge number."""


class Certified(Protocol):
    """A side of TLS connections with a certificate of its own; see `quire.world.tls_sides.TlsSide`."""

    @property
    def expires_at_s(self) -> float: ...


def register_machine(metrics: Metrics, certificates: Mapping[str, Certified | None]) -> None:
    """Register memory, processor and files of this process, and the end of each certificate by the name of its port."""
    limit = memory_limit()
    for kind, name, doc, read in (
        ("gauge", "process_resident_memory_bytes", "Resident memory of the process.", _resident),
        ("counter", "process_cpu_seconds_total", "Processor time of the process.", _cpu_seconds),
        ("gauge", "process_open_fds", "Open files and sockets.", _open_files),
    ):
        metrics.family("counter" if kind == "counter" else "gauge", name, doc, (), _one(read))
    metrics.family(
        "gauge", "quire_memory_limit_bytes", "Memory that the process may have.", (), _one(lambda: limit or None)
    )

    def expiries() -> Samples:
        for server, side in certificates.items():
            if side is not None and side.expires_at_s:
                yield (server,), side.expires_at_s

    metrics.family(
        "gauge",
        "quire_certificate_expiry_timestamp_seconds",
        "End of the validity of the certificate that a port shows, in seconds since 1970.",
        ("server",),
        expiries,
    )


def _one(read: Callable[[], float | None]) -> Callable[[], Samples]:
    def samples() -> Samples:
        found = read()
        if found is not None:
            yield (), found

    return samples


def _resident() -> float | None:
    try:
        return int((_PROC / "self" / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system


def _open_files() -> float | None:
    try:
        return len(os.listdir(_PROC / "self" / "fd"))
    except OSError:
        return None


def memory_limit(groups: Path = _GROUPS, proc: Path = _PROC) -> int:
    """Return the bytes of memory that this process may have: the least limit of its control groups, or the machine's
    memory; 0: unknown."""
    found = []
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
        total = int((proc / "meminfo").read_text().split()[1]) * 1024
        found.append(total)
    except (OSError, IndexError, ValueError):
        return 0
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
        folder = base / path.lstrip("/")
        while folder == base or base in folder.parents:
            try:
                limit = (folder / name).read_text().strip()
            except OSError:
                limit = ""
            if limit.isdigit() and int(limit) < _NO_LIMIT:
                found.append(int(limit))
            folder = folder.parent
    return min(found)
