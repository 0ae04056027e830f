"""A disk with several file systems, each with a size and free bytes that a test sets."""

from __future__ import annotations

from typing import Any

from quire.world.doors import Disk


class Partitioned:
    """As `disk`, but the folders in `sizes` are file systems: [free, total] by path, changed by the test."""

    def __init__(self, disk: Disk, sizes: dict[str, list[int]]) -> None:
        self._disk = disk
        self.sizes = sizes
        self.fails: OSError | None = None
        """Raised by every measurement."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def exists(self, path: str) -> bool:
        return path in self.sizes or self._disk.exists(path)

    def _mount(self, path: str) -> str:
        if self.fails is not None:
            raise self.fails
        return next(mount for mount in self.sizes if path == mount or path.startswith(f"{mount}/"))

    def free_bytes(self, path: str) -> int:
        return self.sizes[self._mount(path)][0]

    def total_bytes(self, path: str) -> int:
        return self.sizes[self._mount(path)][1]

    def device(self, path: str) -> int:
        return list(self.sizes).index(self._mount(path))
