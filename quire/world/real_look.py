"""Reading RocksDB's files without any change, not even to the files in which RocksDB and rocksdict keep notes.

RocksDB gets a temporary folder of links, opened for reading only. It reads the logs into memory.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from quire.world.real_key_value import RealKeyValue

_LEFT_OUT = ("LOCK", "LOG", "rocksdict-config.json")


def look_into(path: str) -> LookedInto:
    """Open the map in folder `path` as it is on disk now. OSError if it cannot be read."""
    import rocksdict  # as in real_key_value.py

    view = tempfile.mkdtemp(prefix="quire-look-")
    try:
        for name in os.listdir(path):
            if name not in _LEFT_OUT:
                os.symlink(os.path.abspath(os.path.join(path, name)), os.path.join(view, name))
        options = rocksdict.Options(raw_mode=True)
        try:
            database = rocksdict.Rdict(view, options, access_type=rocksdict.AccessType.read_only(False))
        except Exception as error:
            raise OSError(errno.EIO, str(error).replace(view, path)) from error
    except BaseException:
        shutil.rmtree(view, ignore_errors=True)
        raise
    return LookedInto(database, rocksdict.WriteBatch, rocksdict.ReadOptions, view, path)


class LookedInto(RealKeyValue):
    """Read-only map: RocksDB refuses changes."""

    def __init__(
        self, database: Any, make_batch: Callable[..., Any], make_bounds: Callable[[], Any], view: str, path: str
    ) -> None:
        super().__init__(database, make_batch, make_bounds)
        self._view = view
        self._path = path

    def get(self, key: bytes) -> bytes | None:
        with self._named():
            return super().get(key)

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        with self._named():
            yield from super().scan(start, stop, reverse=reverse)

    def prefixes(self, start: bytes, stop: bytes, length: int, count_max: int) -> list[bytes]:
        with self._named():
            return super().prefixes(start, stop, length, count_max)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Convert RocksDB's error so that it names the real files, not the links."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, str(error.strerror).replace(self._view, self._path)) from error

    def close(self) -> None:
        try:
            super().close()
        finally:
            shutil.rmtree(self._view, ignore_errors=True)
