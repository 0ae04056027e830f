"""Replacing a folder by a rebuilt one, and removing folders with all in them. Blocking."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from quire.world.doors import Disk


def stamp(wall_ms: int) -> str:
    """Return a time as the original writes it into names of backups.

    >>> stamp(1795854629123)
    '2026-11-28T08:30:29.123+0000'
    """
    at = datetime.fromtimestamp(wall_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{wall_ms % 1000:03d}+0000"


def replace_folder(disk: Disk, current: str, name: str, rebuilt: str, backup: str) -> str:
    """Rename folder `name` to `backup` and `rebuilt` to `name`; return the path of the backup, "" if there was none.

    Killed between the two, there is no folder `name`, and a bookie that has served before refuses to start. The same
    call after another rebuild then takes the second step only.
    """
    kept = ""
    if name in disk.names(current):
        kept = f"{current}/{backup}"
        disk.rename(f"{current}/{name}", kept)
    disk.rename(f"{current}/{rebuilt}", f"{current}/{name}")
    disk.sync_dir(current)
    return kept


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder with all in it; no effect if it does not exist."""
    if not disk.exists(path):
        return
    for name in disk.names(path):
        _remove(disk, f"{path}/{name}")
    disk.remove_dir(path)


def empty_folder(disk: Disk, path: str, keep: tuple[str, ...] = ()) -> None:
    """Remove all that is in a folder, durably, but for the names in `keep`."""
    for name in disk.names(path):
        if name not in keep:
            _remove(disk, f"{path}/{name}")
    disk.sync_dir(path)


def _remove(disk: Disk, path: str) -> None:
    if is_folder(disk, path):
        remove_tree(disk, path)
    else:
        disk.unlink(path)


def is_folder(disk: Disk, path: str) -> bool:
    """Return whether a path names a folder."""
    try:
        disk.names(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def files_below(disk: Disk, path: str) -> Iterator[str]:
    """Yield the paths of all files in a folder and in those below it."""
    for name in disk.names(path):
        inside = f"{path}/{name}"
        if is_folder(disk, inside):
            yield from files_below(disk, inside)
        else:
            yield inside
