"""The data directory of a standalone server: its lock, and the version of its layout.

LOCK            held while a server runs
FORMAT          "quire standalone 1\\n": layout and formats below; a newer one is refused
metadata/       the embedded metadata store
bookie/journal  the bookie's write-ahead log
bookie/ledgers  entry logs, their indexes, lastMark
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.servers.errors import DataDirectoryError
from quire.world.doors import Disk, DiskLock

FORMAT_VERSION = 1
_FORMAT_HEAD = b"quire standalone "
LOCK_NAME = "LOCK"
FORMAT_NAME = "FORMAT"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """A claimed directory; `lock` is released when the server ends, however it ends."""

    root: str
    lock: DiskLock

    @property
    def metadata(self) -> str:
        return f"{self.root}/metadata"

    @property
    def journal(self) -> str:
        return f"{self.root}/bookie/journal"

    @property
    def ledgers(self) -> str:
        return f"{self.root}/bookie/ledgers"


def claim(disk: Disk, root: str) -> DataDirectory:
    """Lock `root` (an absolute path), creating it if missing, and check its version. Blocking.

    Raises DataDirectoryError if another process has it, if its version is not supported, or if it is not a data
    directory and not empty; OSError of the disk."""
    disk.make_dirs(root)
    # A crash in the very first start can leave the temporary file of FORMAT.
    names = [name for name in disk.names(root) if name not in (LOCK_NAME, f"{FORMAT_NAME}.tmp")]
    if FORMAT_NAME not in names and names:
        raise DataDirectoryError(
            f"{root} holds {names[0]!r} but no {FORMAT_NAME} file: it is not a data directory of quire; use an empty "
            "one"
        )
    try:
        lock = disk.lock(f"{root}/{LOCK_NAME}")
    except BlockingIOError:
        raise DataDirectoryError(f"{root} is in use by another server") from None
    try:
        _check_format(disk, f"{root}/{FORMAT_NAME}")
    except BaseException:
        lock.release()
        raise
    return DataDirectory(root, lock)


def _check_format(disk: Disk, path: str) -> None:
    try:
        read_format(disk, path)
    except FileNotFoundError:
        disk.write_atomic(path, _FORMAT_HEAD + b"%d\n" % FORMAT_VERSION)


def read_format(disk: Disk, path: str) -> None:
    """Check the version in the file. Raises DataDirectoryError; FileNotFoundError. Blocking."""
    text = disk.read(path)
    number = text.removeprefix(_FORMAT_HEAD).removesuffix(b"\n")
    if _FORMAT_HEAD + number + b"\n" != text or not number.isdigit():
        raise DataDirectoryError(f"{path} is damaged: {text[:40]!r}")
    if int(number) > FORMAT_VERSION:
        raise DataDirectoryError(
            f"{path} has version {int(number)}, above the {FORMAT_VERSION} that this quire supports: use a newer quire"
        )
