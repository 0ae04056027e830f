"""Epoch of a bookie's folders: a number that grows at each start and every minute, by which an old image is detected.

    <folder>/current/epoch      decimal, a space, its crc32c in hex, in each folder of the bookie
    <root>/underreplication/quireepochs/<bookie id>   persistent: the same, written after the files

The cluster's number is never ahead of the files, whatever crashes. So a folder with a lower number than the cluster's
is older than the bookie was: an image of its disk was put back, and what was acknowledged since is missing. An image
that is put back within the minute in which it was taken is not detected. The cookie cannot show this, as it never
changes. The original has nothing of the kind, and ignores both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import trio
from crc32c import crc32c

from quire.metadata.bookies import epoch_path
from quire.metadata.errors import MetadataError, NodeExistsError
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.service.log import get_logger
from quire.world.doors import Disk, World

log = get_logger(__name__)

EPOCH_FILE: Final = "epoch"
EPOCH_INTERVAL_S: Final = 60.0
_COOKIE: Final = "VERSION"


def encode_epoch(epoch: int) -> bytes:
    """
    >>> encode_epoch(12)
    b'12 7355c460'
    """
    digits = b"%d" % epoch
    return b"%s %08x" % (digits, crc32c(digits))


def decode_epoch(value: bytes) -> int | None:
    """Return the number; None if it is damaged.

    >>> decode_epoch(b"12 7355c460"), decode_epoch(b"13 7355c460"), decode_epoch(b"")
    (12, None, None)
    """
    digits = value.split(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) < 19 and encode_epoch(int(digits)) == value else None


def outdated(stored: int | None, found: Mapping[str, int | None]) -> list[str]:
    """Return the folders that are older than the cluster's number; none if the cluster has none. Pure.

    `found`: -1 for a folder without the file; None for one whose file is damaged, or that has only its cookie, as a
    folder that was added. That one is passed over if another folder proves that it is new enough.

    >>> outdated(7, {"/j": 7, "/l": 6, "/i": -1}), outdated(None, {"/j": -1})
    (['/l', '/i'], [])
    >>> outdated(7, {"/j": 7, "/l": None}), outdated(7, {"/l": None})
    ([], ['/l'])
    """
    if stored is None:
        return []
    proven = any([epoch is not None and epoch >= stored for epoch in found.values()])
    return [folder for folder, epoch in found.items() if (not proven if epoch is None else epoch < stored)]


class Epochs:
    """Epoch of one bookie. `folders`: its `current` folders."""

    def __init__(
        self, world: World, metadata: MetadataStore, folders: Sequence[str], *, root: str, bookie_id: str
    ) -> None:
        self._world = world
        self._metadata = metadata
        self._folders = tuple(folders)
        self._path = epoch_path(root, bookie_id)
        self._last = 0

    async def outdated(self) -> list[str]:
        """Return the folders that are older than they were. MetadataError, OSError."""
        stored = await self._stored()
        found = await self._world.offload.run(self._read, name="epochs")
        self._last = max(stored or 0, *[epoch or 0 for epoch in found.values()])
        older = outdated(stored, found)
        added = [folder for folder, epoch in found.items() if epoch is None and folder not in older]
        if stored is not None and added:
            # Before anything else is written to them: a crash on the way to the next epoch must not make them old.
            await self._world.offload.run(partial(self._write, added, stored), name="epochs")
        return older

    async def advance(self) -> None:
        """Begin the next epoch in all folders, then in the cluster. After `outdated`. MetadataError, OSError."""
        epoch = max(self._last, await self._stored() or 0) + 1

        await self._world.offload.run(partial(self._write, self._folders, epoch), name="epochs")
        self._last = epoch
        try:
            await self._metadata.create(self._path, encode_epoch(epoch), make_parents=True)
        except NodeExistsError:
            await self._metadata.put(self._path, encode_epoch(epoch), ANY_VERSION)

    async def run(self) -> None:
        """Begin an epoch every minute, for ever. If the metadata service is away, the epoch lasts longer."""
        while True:
            await trio.sleep(EPOCH_INTERVAL_S)
            try:
                await self.advance()
            except (MetadataError, OSError) as error:
                log.info("no new epoch of the folders", reason=str(error))

    async def _stored(self) -> int | None:
        node = await self._metadata.get(self._path)
        return None if node is None else decode_epoch(node.value)

    def _write(self, folders: Sequence[str], epoch: int) -> None:
        for folder in folders:
            self._world.disk.write_atomic(f"{folder}/{EPOCH_FILE}", encode_epoch(epoch))

    def _read(self) -> dict[str, int | None]:
        return {folder: read_epoch(self._world.disk, folder) for folder in self._folders}


def read_epoch(disk: Disk, folder: str) -> int | None:
    """Return the epoch of a folder, -1 if it has none, None if that proves nothing: the folder was added just now.

    Blocking. OSError.
    """
    try:
        return decode_epoch(disk.read(f"{folder}/{EPOCH_FILE}"))
    except FileNotFoundError:
        names = [each for each in disk.names(folder) if not each.endswith(".tmp")] if disk.exists(folder) else []
        return None if names == [_COOKIE] else -1
