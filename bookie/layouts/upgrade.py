"""Upgrade of a bookie's directories to the present layout, its rollback, and its end. Blocking.

Upgrade from 1 or 2:
    1  in each directory upgradeTmp/ is filled with links to the files, and with the new cookie
    2  in each directory upgradeTmp/ is renamed to current/
Upgrade from 3 or 4: the old cookie is copied to current/VERSION.before, then current/VERSION is replaced.
Afterwards the caller stores the cookie in the cluster.

Rollback: current/ is renamed to rollbackTmp/ and removed; or current/VERSION.before becomes current/VERSION again.
Finalize: the old files, which are second names of those in current/, or current/VERSION.before are removed.

Each step may be killed at any time, and the same call finishes it: what is done is seen in the directories.

The original's rollback removes current/ whether or not there was an upgrade, and with it all data. Here it is refused.

Source: BookKeeper's FileSystemUpgrade.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bookie.cookie import VERSION_FILE
from bookie.layouts.detect import BEFORE_FILE, CURRENT, DirectoryLayout, LayoutError, detect
from bookie.rebuild.trees import files_below, is_folder, remove_tree
from quire.metadata.cookies import LAYOUT_VERSION, Cookie, encode_cookie
from quire.world.doors import Disk

TEMPORARY: Final = "upgradeTmp"
DOOMED: Final = "rollbackTmp"
_OURS: Final = (".txn", ".log")
_FIRST_WITH_CURRENT: Final = 3

Tell = Callable[[str], None]


def upgrade(disk: Disk, directories: Sequence[str], cookie: Cookie, tell: Tell = lambda text: None) -> bool:
    """Upgrade the directories, which the caller has locked; return whether any of them was or is upgraded.

    LayoutError: nothing was changed. OSError.
    """
    layouts = {directory: detect(disk, directory) for directory in directories}
    older = {directory: layout for directory, layout in layouts.items() if layout.needs_upgrade}
    # A directory may have been upgraded by a call that was killed before it came to the others.
    begun = any(layout.is_upgraded for layout in layouts.values())
    if not older and not begun:
        return False
    for directory, layout in layouts.items():
        if layout.is_empty:
            raise LayoutError(f"{directory} is empty, and the bookie's other directories are not: is it mounted?")
        current = f"{directory}/{CURRENT}"
        if layout.version == 0 and disk.exists(current) and disk.names(current):
            raise LayoutError(f"{current} has files and no cookie, beside files of an older layout in {directory}")
    data = encode_cookie(cookie)
    flat = [directory for directory, layout in older.items() if layout.version == 0]
    for directory in flat:
        _fill(disk, directory, layouts[directory], data)
    for directory in flat:
        disk.rename(f"{directory}/{TEMPORARY}", f"{directory}/{CURRENT}")
        disk.sync_dir(directory)
        tell(f"upgraded {directory} from layout {layouts[directory].old_version}")
    for directory, layout in older.items():
        if layout.version > 0:
            _replace_cookie(disk, f"{directory}/{CURRENT}", data)
            tell(f"upgraded {directory} from layout {layout.version}")
    return True


def _fill(disk: Disk, directory: str, layout: DirectoryLayout, cookie: bytes) -> None:
    """Fill upgradeTmp/ of one directory anew, durably."""
    temporary = f"{directory}/{TEMPORARY}"
    remove_tree(disk, temporary)
    disk.make_dirs(temporary)
    for name in layout.old_files:
        path = f"{directory}/{name}"
        if not is_folder(disk, path):
            disk.link(path, f"{temporary}/{name}")
            continue
        for file in files_below(disk, path):
            new = f"{temporary}/{file.removeprefix(directory + '/')}"
            folder = new.rpartition("/")[0]
            disk.make_dirs(folder)
            disk.link(file, new)
            disk.sync_dir(folder)
    disk.write_atomic(f"{temporary}/{VERSION_FILE}", cookie)
    disk.sync_dir(temporary)
    if disk.exists(f"{directory}/{CURRENT}"):
        disk.remove_dir(f"{directory}/{CURRENT}")  # an empty one


def _replace_cookie(disk: Disk, current: str, cookie: bytes) -> None:
    before = f"{current}/{BEFORE_FILE}"
    if not disk.exists(before):
        disk.write_atomic(before, disk.read(f"{current}/{VERSION_FILE}"))
    disk.write_atomic(f"{current}/{VERSION_FILE}", cookie)


def rollback(
    disk: Disk, directories: Sequence[str], *, force: bool = False, tell: Tell = lambda text: None
) -> bytes | None:
    """Bring back the layout before the upgrade; return the cookie of layout 3 or 4 that the cluster gets back.

    LayoutError: nothing was changed: a directory was not upgraded, or the bookie has run since (not with `force`: what
    it stored since is lost). OSError.
    """
    layouts = {directory: detect(disk, directory) for directory in directories}
    for directory, layout in layouts.items():
        if layout.version == LAYOUT_VERSION and not layout.is_upgraded:
            raise LayoutError(
                f"{directory} has no older layout beside the present one: it was never upgraded, or the upgrade is "
                "finalized. Nothing was changed"
            )
        if layout.is_upgraded and layout.old_version < _FIRST_WITH_CURRENT and not force:
            newer = _newer(disk, directory)
            if newer:
                raise LayoutError(
                    f"{directory}/{CURRENT} has {', '.join(newer[:3])}, which the bookie wrote after the upgrade: a "
                    "rollback loses all that it has acknowledged since. With --force it is done all the same"
                )
    before: bytes | None = None
    for directory, layout in layouts.items():
        remove_tree(disk, f"{directory}/{DOOMED}")
        current = f"{directory}/{CURRENT}"
        if layout.is_upgraded and layout.old_version < _FIRST_WITH_CURRENT:
            disk.rename(current, f"{directory}/{DOOMED}")
            disk.sync_dir(directory)
            remove_tree(disk, f"{directory}/{DOOMED}")
            disk.sync_dir(directory)
        elif layout.is_upgraded:
            before = disk.read(f"{current}/{BEFORE_FILE}")
            disk.rename(f"{current}/{BEFORE_FILE}", f"{current}/{VERSION_FILE}")
            disk.sync_dir(current)
        elif layout.version > 0:
            before = disk.read(f"{current}/{VERSION_FILE}")
        tell(f"rolled back {directory} to layout {layout.old_version or layout.version}")
    return before


def _newer(disk: Disk, directory: str) -> list[str]:
    """Return journals and entry logs that are in `current` alone."""
    old = set(disk.names(directory))
    return [name for name in disk.names(f"{directory}/{CURRENT}") if name.endswith(_OURS) and name not in old]


def finalize(disk: Disk, directories: Sequence[str], tell: Tell = lambda text: None) -> int:
    """Remove what a rollback would need; return in how many directories. LayoutError: nothing was changed. OSError."""
    layouts = {directory: detect(disk, directory) for directory in directories}
    for directory, layout in layouts.items():
        if layout.needs_upgrade:
            raise LayoutError(f"{directory} has layout {layout.version or layout.old_version}: upgrade it first")
    count = 0
    for directory, layout in layouts.items():
        if not layout.is_upgraded:
            continue
        for name in layout.old_files:
            path = f"{directory}/{name}"
            if is_folder(disk, path):
                remove_tree(disk, path)
            else:
                disk.unlink(path)
        # The file of layout 2 goes last: without it the files would be those of layout 1.
        for path in (f"{directory}/{VERSION_FILE}", f"{directory}/{CURRENT}/{BEFORE_FILE}"):
            if disk.exists(path):
                disk.unlink(path)
                disk.sync_dir(path.rpartition("/")[0])
        disk.sync_dir(directory)
        tell(f"finalized {directory}")
        count += 1
    return count
