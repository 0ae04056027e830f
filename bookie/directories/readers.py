"""Read workers for several ledger directories: each has its own, so a disk that hangs holds up no reads of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bookie.directories.health import DirectoryHealth
from bookie.directories.routes import Routes
from bookie.reads import ReadWorkers


class SpreadReadWorkers:
    """Workers by directory. `make` returns those of one, whose number it gets."""

    def __init__(self, make: Callable[[int], ReadWorkers], routes: Routes, health: DirectoryHealth) -> None:
        self.all = tuple(make(index) for index in range(routes.directories))
        """The workers of all directories."""
        self._routes = routes
        self._health = health

    def of(self, ledger_id: int) -> ReadWorkers:
        """Return the workers of the ledger's directory.

        Jobs of one that cannot be used raise at once (SpreadReader), and must not wait behind those that hang.
        """
        index = self._routes.directory(ledger_id)
        if self._health.reasons[index]:
            usable = self._health.usable
            index = usable[0] if usable else index
        return self.all[index]


LedgerReadWorkers: TypeAlias = ReadWorkers | SpreadReadWorkers
"""Read workers of a bookie, for its only directory or for several."""
