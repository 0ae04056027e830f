"""Looking into RocksDB's files without a change to them, not even to those that RocksDB only logs to.

The folder is shown to RocksDB as a temporary one of links, opened to be read only. Its logs are read into memory.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from quire.world.damage import Finding
from quire.world.doors import Batch

_COPIED = ("CURRENT", "IDENTITY")
_LEFT_OUT = ("LOCK", "rocksdict-config.json")


def look_into(path: str) -> ReadOnlyKeyValue:
    """The map in folder `path`, which no process has open. OSError if RocksDB cannot read it."""
    import rocksdict  # as in real_key_value.py

    view = tempfile.mkdtemp(prefix="quire-look-")
    try:
        for name in os.listdir(path):
            if name in _COPIED:
                shutil.copyfile(os.path.join(path, name), os.path.join(view, name))
            elif name not in _LEFT_OUT and not name.startswith("LOG"):
                os.symlink(os.path.abspath(os.path.join(path, name)), os.path.join(view, name))
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(False)
        mode = rocksdict.AccessType.read_only(False)
        try:
            database = rocksdict.Rdict(view, options, access_type=mode)
        except Exception as error:
            raise _os_error(error, view, path) from None
    except BaseException:
        shutil.rmtree(view, ignore_errors=True)
        raise
    return ReadOnlyKeyValue(database, view, path)


def _os_error(error: Exception, view: str, path: str) -> OSError:
    return OSError(errno.EIO, str(error).replace(view, path))


class ReadOnlyKeyValue:
    """A map as `look_into` opened it. Its methods that change something raise OSError (EROFS)."""

    noticed: Sequence[Finding] = ()

    def __init__(self, database: Any, view: str, path: str) -> None:
        self._database = database
        self._view = view
        self._path = path

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise _os_error(error, self._view, self._path) from None
        return value

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        assert not reverse, "nothing looks backwards"
        try:
            rows = self._database.iter()
            rows.seek(start)
            while rows.valid():
                key: bytes = rows.key()
                if key >= stop:
                    return
                yield key, rows.value()
                rows.next()
            rows.status()
        except Exception as error:
            raise _os_error(error, self._view, self._path) from None

    def batch(self) -> Batch:
        self._refuse()

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._refuse()

    def compact(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OSError(errno.EROFS, "opened to be looked at only", self._path)

    def close(self) -> None:
        try:
            self._database.close()
        finally:
            shutil.rmtree(self._view, ignore_errors=True)
