"""Signs that a server uses a bookie's folders, one of the original too, which takes no lock on them. Blocking.

Two signs count: a process of this machine that has a file in the folders open, and an answer at the bookie's port,
which also comes from another container. A bookie of the original with SortedLedgerStorage or InterleavedLedgerStorage
has no RocksDB, so no lock shows that it runs.

Processes of other users are seen by root alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CONNECT_TIMEOUT_S: Final = 1.0


def user_of(folders: Iterable[str], host: str, port: int, proc: Path = Path("/proc")) -> str:
    """Return what uses the folders or serves at the address; empty if nothing is found. `port` 0: not asked."""
    roots = tuple(f"{os.path.realpath(each)}/" for each in folders)
    return _with_open_file(roots, proc) or _answers(host or "127.0.0.1", port)


def _with_open_file(roots: tuple[str, ...], proc: Path) -> str:
    own = str(os.getpid())
    for process in proc.glob("[0-9]*"):
        if process.name == own:
            continue
        try:
            for each in (process / "fd").iterdir():
                path = os.readlink(each)
                if path.startswith(roots):
                    name = (process / "comm").read_text().strip()
                    return f"process {process.name} ({name}) has {path.removesuffix(' (deleted)')} open"
        except OSError:
            continue  # of another user, or it has ended
    return ""


def _answers(host: str, port: int) -> str:
    if not port:
        return ""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S):
            return f"something serves at {host}:{port}, the address of this bookie"
    except OSError:
        return ""
