"""Faults of single folders of a machine, as if each was a disk of its own: full, broken, or hanging.

Only operations on files and maps below the folder meet them. They outlive crashes of the machine, until `mend`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simulation.machines.blocking import block


class FolderFaults:
    """Faults of the folders of one machine, and who waits for their end."""

    def __init__(self) -> None:
        self._full: dict[str, None] = {}
        self._broken: dict[str, None] = {}
        self._hanging: dict[str, None] = {}
        self._unseen = 0
        self.count = 0
        """Faults so far."""
        self.on_mended: Callable[[], None] = lambda: None
        """Called when a folder answers again."""

    def fill(self, folder: str) -> None:
        """Let writes that make a file longer fail with ENOSPC."""
        self._full[folder] = None
        self.count += 1

    def break_(self, folder: str) -> None:
        """Let every operation fail with EIO. What a sync should have made durable never will be."""
        self._broken[folder] = None
        self.count += 1

    def hang(self, folder: str) -> None:
        """Let every operation wait for `mend`."""
        self._hanging[folder] = None
        self.count += 1

    def mend(self, folder: str) -> None:
        """End all faults of a folder."""
        for faults in (self._full, self._broken, self._hanging):
            faults.pop(folder, None)
        self.on_mended()

    def mend_all(self) -> None:
        """End all faults."""
        for folder in {**self._full, **self._broken, **self._hanging}:
            self.mend(folder)

    @property
    def any(self) -> bool:
        """Return whether a folder has a fault."""
        return bool(self._full or self._broken or self._hanging)

    @property
    def hangs(self) -> bool:
        """Return whether a folder hangs."""
        return bool(self._hanging)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Let the block look at files and maps past all faults, for checkers."""
        self._unseen += 1
        try:
            yield
        finally:
            self._unseen -= 1

    def is_full(self, path: str) -> bool:
        """Return whether `path` is in a full folder."""
        return bool(self._full) and _within(path, self._full)

    def is_broken(self, path: str) -> bool:
        """Return whether `path` is in a broken folder."""
        return bool(self._broken) and not self._unseen and _within(path, self._broken)

    def wait(self, path: str, check: Callable[[], None]) -> None:
        """Wait while the folder of `path` hangs. `check` is called after each wait: it raises if the power is off."""
        while self._hanging and not self._unseen and _within(path, self._hanging):
            block()
            check()

    def reach(self, path: str, check: Callable[[], None]) -> None:
        """Wait while the folder of `path` hangs; raise EIO if it is broken."""
        self.wait(path, check)
        if self.is_broken(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def _within(path: str, folders: dict[str, None]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
