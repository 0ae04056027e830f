"""Facts of this machine: mounts, free space, syncs, open files, ports. Blocking.

A sync is measured on a file without a name (O_TMPFILE, or one that is unlinked before it is written): nothing stays in
the folder, not even after a kill.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from quire.cli.checkup.verdicts import Mount

SYNCS: Final = 15
SYNC_BYTES: Final = 4096
SYNC_TIME_MAX_S: Final = 3.0
"""Time after which no further sync is measured."""
_LISTENING: Final = "0A"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def mount_of(folder: Path, table: str | None = None, sys_block: Path = Path("/sys/dev/block")) -> Mount | None:
    """Return the mount that an existing folder is on; None where the kernel does not tell. `table`: the content of
    /proc/self/mountinfo."""
    if table is None:
        try:
            table = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return None
    real = folder.resolve()
    best: Mount | None = None
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) < 6 or not more:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # A later line covers an earlier one with the same point.
        if real.is_relative_to(point) and (best is None or len(point) >= len(best.point)):
            # Behind the type are those of the file system, as after an error that made it read-only.
            options = frozenset((*fields[5].split(","), *(more[2].split(",") if len(more) > 2 else ())))
            best = Mount(point=point, kind=more[0], options=options, device=fields[2])
    if best is None:
        return None
    return Mount(
        point=best.point,
        kind=best.kind,
        options=best.options,
        device=best.device,
        rotating=_rotates(sys_block / best.device),
    )


def _rotates(block: Path) -> bool:
    for each in (block / "queue/rotational", block / "../queue/rotational"):  # a partition has its disk's
        try:
            return each.read_text().strip() == "1"
        except OSError:
            continue
    return False


def space(folder: Path) -> tuple[int, int, int, int]:
    """Return free and total bytes, free and total inodes, for this user. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files


def sync_times(folder: Path) -> list[float]:
    """Return the seconds that some syncs took. Raises OSError if the folder cannot be written."""
    found: list[float] = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        begun = time.monotonic()
        while len(found) < SYNCS and time.monotonic() - begun < SYNC_TIME_MAX_S:
            file.write(b"\0" * SYNC_BYTES)
            started = time.monotonic()
            os.fdatasync(file.fileno())
            found.append(time.monotonic() - started)
    return found


def newest_file(folders: Iterable[Path]) -> tuple[str, float]:
    """Return the file in the folders that was changed last, and its time; ("", 0) if there is none."""
    newest = ("", 0.0)
    for folder in folders:
        try:
            for each in os.scandir(folder):
                changed = each.stat(follow_symlinks=False).st_mtime
                if changed > newest[1]:
                    newest = (each.path, changed)
        except OSError:
            continue
    return newest


def open_files_max() -> int:
    """Return the hard limit of open files; -1: none."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return -1 if hard == resource.RLIM_INFINITY else hard


def temporary_files(folder: Path) -> list[str]:
    """Return the temporary files directly in a folder and in `current` below it, sorted."""
    found: list[str] = []
    for each in (folder, folder / "current"):
        if each.is_dir():
            found += [str(path) for path in each.iterdir() if path.name.endswith((".tmp", ".new"))]
    return sorted(found)


def holder(host: str, number: int) -> str | None:
    """Return what listens on a port, None if it is free; empty if it is taken by a process of another user."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        return ""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
            return None
        except OSError:
            return _process_with(_inodes(number))


def _inodes(number: int) -> set[str]:
    """Return the inodes of sockets that listen on a port."""
    found: set[str] = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == number:
                found.add(fields[9])
    return found


def _process_with(inodes: set[str]) -> str:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(each) in wanted for each in (folder / "fd").iterdir()):
                return f"process {folder.name} ({(folder / 'comm').read_text().strip()})"
        except OSError:
            continue  # of another user, or it has ended
    return ""


def lock_holder(path: Path) -> str:
    """Return the process that holds a lock on a file; empty if that is unknown."""
    pid = lock_holder_pid(path)
    if pid is None:
        return ""
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return ""


def open_files_of(pid: int) -> tuple[int, int] | None:
    """Return how many descriptors a process has open, and how many it may have; None if that is unknown."""
    try:
        limits = Path(f"/proc/{pid}/limits").read_text()
        limit = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files"))
        return len(list(Path(f"/proc/{pid}/fd").iterdir())), int(limit)
    except (OSError, ValueError, StopIteration):
        return None


def lock_holder_pid(path: Path) -> int | None:
    """Return the id of the process that holds a lock on a file; None if that is unknown."""
    try:
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "->":
                continue
            if int(fields[5].rpartition(":")[2]) == inode and fields[4].isdigit():
                return int(fields[4])
    except (OSError, ValueError, IndexError):
        pass
    return None
