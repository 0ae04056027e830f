"""Reads of the rows of the embedded store, off the event loop. All that are wanted while others are read are one job.

What holds: a node is learned from the disk only if nothing was planned for it since the read began, and a list of
children is corrected by all that was unsettled at any time since then. So what is learned is what readers may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import trio

from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError
from quire.metadata.local.rows import read_names, read_node
from quire.metadata.local.tree import Znode
from quire.metadata.local.visible import LISTED_MAX, Unknown, VisibleNodes
from quire.world.doors import KeyValue, Offload
from quire.world.errors import again

ALL = 1 << 62
"""`count_max` of a list with all names."""


class _NodeRead:
    """Read of one node, which any number of tasks wait for."""

    __slots__ = ("error", "finished", "node", "outdated", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.finished = trio.Event()
        self.node: Znode | None = None
        self.error: Exception | None = None
        self.outdated = False
        """True if a write was planned for the node meanwhile."""


class _NamesRead:
    """Read of the first names below a node."""

    __slots__ = ("changed", "count_max", "error", "finished", "folder", "names", "whole")

    def __init__(self, folder: str, count_max: int) -> None:
        self.folder = folder
        self.count_max = count_max
        self.finished = trio.Event()
        self.names: list[str] = []
        self.whole = False
        """True if there are no other names."""
        self.error: Exception | None = None
        self.changed: dict[str, bool] = {}
        """By name: True or False for children whose creation or deletion has become visible meanwhile."""


_Read: TypeAlias = _NodeRead | _NamesRead


class RowReads:
    """Reads of one store. `unsettled` returns the paths whose rows may differ from what readers may see."""

    def __init__(
        self, offload: Offload, key_value: KeyValue, visible: VisibleNodes, unsettled: Callable[[], Iterable[str]]
    ) -> None:
        self._key_value = key_value
        self._visible = visible
        self._unsettled = unsettled
        self._nodes: dict[str, _NodeRead] = {}
        self._names: dict[tuple[str, int], _NamesRead] = {}
        self._gathered: list[_Read] = []
        """Reads of this turn of the event loop, which are not with the lane yet."""
        self._handing_over = False
        self._lane = offload.lane("metadata reads", self._read, self._done)

    async def aclose(self) -> None:
        """Finish the reads under way; there must be no more."""
        for read in self._gathered:
            self._lane.put(read)
        self._gathered = []
        await self._lane.aclose()

    async def fetch(self, wanted: Iterable[str]) -> None:
        """Read these nodes, so that they are known. MalformedMetadataError."""
        reads = [self._wanted(path) for path in wanted]
        # Of a parent that is missing, nothing below it has to be read.
        for folder in dict.fromkeys([paths.parent(read.path) for read in reads]):
            if isinstance(self._visible.find(folder), Unknown):
                self._wanted(folder)
        await self._hand_over()
        for read in reads:
            if not read.finished.is_set():
                await read.finished.wait()
            if read.error is not None:
                raise again(read.error) from read.error

    async def names(self, folder: str, count_max: int = ALL) -> tuple[list[str], bool]:
        """Read the names of the first children of a node, sorted, and whether these are all. Those that are being
        created or deleted meanwhile may be missing. MalformedMetadataError."""
        read = self._names.get((folder, count_max))
        if read is None:
            read = self._names[folder, count_max] = _NamesRead(folder, count_max)
            self._gathered.append(read)
        await self._hand_over()
        if not read.finished.is_set():
            await read.finished.wait()
        if read.error is not None:
            raise again(read.error) from read.error
        return read.names, read.whole

    def planned(self, effects: Iterable[str]) -> None:
        """Note that a write of these nodes was planned."""
        if self._nodes:
            for path in effects:
                if (read := self._nodes.get(path)) is not None:
                    read.outdated = True

    def shown(self, path: str, exists: bool) -> None:
        """Note that a write of a node became visible."""
        for read in self._names.values():
            if read.folder == paths.parent(path) != path:
                read.changed[paths.name(path)] = exists

    @property
    def lists(self) -> bool:
        """Return whether `shown` has to be called."""
        return bool(self._names)

    def _wanted(self, path: str) -> _NodeRead:
        read = self._nodes.get(path)
        if read is None:
            read = self._nodes[path] = _NodeRead(path)
            self._gathered.append(read)
        return read

    async def _hand_over(self) -> None:
        """Give the lane what the tasks of this turn of the event loop want. A job for each would cost more than what it
        reads."""
        if self._gathered and not self._handing_over:
            self._handing_over = True
            await trio.lowlevel.cancel_shielded_checkpoint()
            self._handing_over = False
            gathered, self._gathered = self._gathered, []
            for read in gathered:
                self._lane.put(read)

    def _read(self, reads: list[_Read]) -> None:
        """Job of the lane, off the loop."""
        for read in reads:
            try:
                if isinstance(read, _NodeRead):
                    read.node = read_node(self._key_value, read.path)
                else:
                    read.names, read.whole = read_names(self._key_value, read.folder, read.count_max)
            except MalformedMetadataError as error:
                read.error = error
            except OSError as error:
                where = read.path if isinstance(read, _NodeRead) else f"what is below {read.folder}"
                read.error = MalformedMetadataError(f"{where} cannot be read in the metadata: {error}")

    def _done(self, reads: list[_Read], _: None, error: BaseException | None) -> None:
        """Report of the lane, on the loop."""
        visible = self._visible
        for read in reads:
            if isinstance(error, Exception):
                read.error = error
            if isinstance(read, _NodeRead):
                del self._nodes[read.path]
                if read.error is None and not read.outdated and visible.is_unknown(read.path):
                    visible.learn(read.path, read.node)
            else:
                del self._names[read.folder, read.count_max]
                if read.error is None:
                    self._correct(read)
                    is_short = len(read.names) <= LISTED_MAX or read.count_max < ALL
                    if read.whole and is_short and visible.find(read.folder) is not None:
                        visible.learn_names(read.folder, read.names)
                    elif not read.whole:
                        visible.some_names[read.folder] = dict.fromkeys(read.names)
            read.finished.set()
        if visible.is_full:
            visible.age(self._unsettled())

    def _correct(self, read: _NamesRead) -> None:
        """Make of the names on the disk those that readers may see. If not all were read, only names that certainly
        exist are left."""
        start = "/" if read.folder == paths.ROOT else f"{read.folder}/"
        changed = read.changed
        for path in (*self._visible.ephemerals, *self._unsettled()):
            if path.startswith(start) and "/" not in path[len(start) :] and path != start:
                changed[path[len(start) :]] = self._visible.find(path) is not None
        if changed:
            names = set(read.names)
            for name, exists in changed.items():
                if exists and read.whole:
                    names.add(name)
                elif not exists:
                    names.discard(name)
            read.names = sorted(names)
