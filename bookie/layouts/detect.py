"""The layout of a bookie's directory. Blocking.

    1    files of the bookie right in the directory, without VERSION
    2    the same, and VERSION with the number
    3    current/ with all files; current/VERSION has lines
    4    current/VERSION has protobuf text, without the directories of the indexes
    5    current/VERSION names them too

After an upgrade from 1 or 2 the old files stay, as other names of the same files, until it is finalized. After one from
3 or 4 current/VERSION.before has the old cookie.

Source: BookKeeper's FileSystemUpgrade, Cookie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bookie.cookie import VERSION_FILE
from bookie.errors import BookieError
from bookie.interleaved.index_file import is_hex
from bookie.rebuild.trees import files_below, is_folder
from quire.metadata.cookies import LAYOUT_VERSION, decode_cookie
from quire.metadata.errors import MetadataError
from quire.world.doors import Disk

CURRENT: Final = "current"
BEFORE_FILE: Final = f"{VERSION_FILE}.before"
_SUFFIXES: Final = (".txn", ".log")
_INDEX: Final = ".idx"
_OLDEST_WITH_CURRENT: Final = 3


class LayoutError(BookieError):
    """A directory has an unknown layout, or does not allow the step. Final: the message has the remedy."""


@dataclass(frozen=True, slots=True)
class DirectoryLayout:
    """DirectoryLayout of one directory.

    `version` is that of `current`, 0 if there is none. `old_version` is that of the files beside it (1 or 2), or of the
    cookie before (3 or 4); 0 if there is none. `old_files`: names of those files and folders in the directory.
    """

    version: int
    old_version: int
    old_files: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether no bookie has used the directory."""
        return self.version == 0 and self.old_version == 0

    @property
    def is_upgraded(self) -> bool:
        """Return whether an upgrade was done, and not finalized."""
        return self.version == LAYOUT_VERSION and self.old_version > 0

    @property
    def needs_upgrade(self) -> bool:
        return not self.is_empty and self.version < LAYOUT_VERSION


def detect(disk: Disk, directory: str) -> DirectoryLayout:
    """Return the layout of a directory, without `current`. LayoutError for one that is not known; OSError."""
    if not disk.exists(directory):
        return DirectoryLayout(0, 0)
    names = disk.names(directory)
    files = tuple(name for name in names if _is_of_bookie(disk, directory, name))
    old_version = 1 if files else 0
    if VERSION_FILE in names:
        old_version = _number(disk, f"{directory}/{VERSION_FILE}")
        if old_version != 2:
            raise LayoutError(f"{directory}/{VERSION_FILE} has version {old_version}, and only 2 was ever there")
    version = 0
    if CURRENT in names and VERSION_FILE in disk.names(f"{directory}/{CURRENT}"):
        version = _cookie_version(disk, f"{directory}/{CURRENT}/{VERSION_FILE}")
        if BEFORE_FILE in disk.names(f"{directory}/{CURRENT}"):
            old_version = _cookie_version(disk, f"{directory}/{CURRENT}/{BEFORE_FILE}")
    return DirectoryLayout(version, old_version, files)


def _is_of_bookie(disk: Disk, directory: str, name: str) -> bool:
    """Return whether a name beside `current` is that of a bookie's file, or of a folder with index files."""
    if name.endswith(_SUFFIXES) or name == "lastId" or name.startswith("lastMark"):
        return True
    path = f"{directory}/{name}"
    return is_hex(name) and is_folder(disk, path) and any(each.endswith(_INDEX) for each in files_below(disk, path))


def _number(disk: Disk, path: str) -> int:
    words = disk.read(path).split()
    if not words or not words[0].isdigit():
        raise LayoutError(f"{path} has no version: it begins with {disk.read(path)[:20]!r}")
    return int(words[0])


def _cookie_version(disk: Disk, path: str) -> int:
    try:
        version = decode_cookie(disk.read(path)).layout_version
    except MetadataError as error:
        raise LayoutError(f"{path}: {error}. Copy the file from the bookie's other folder") from error
    if not _OLDEST_WITH_CURRENT <= version <= LAYOUT_VERSION:
        raise LayoutError(f"{path} has version {version}")
    return version
