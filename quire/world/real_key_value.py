"""RocksDB as an ordered map. This module alone imports rocksdict, when the first map is opened, to keep startup fast.

- RocksDB's synced write through rocksdict holds the interpreter lock during the fsync; its `flush_wal` releases it. So
  a synced batch is an unsynced write followed by `flush_wal`, which makes it and all earlier ones durable.
- rocksdict's iterator of pairs costs 0.4 us a pair, but ends silently at a damaged block: its end is checked, see
  `scan`.
- Deleted ranges are skipped one by one: 1.8 ms for 1,900 of them. So RocksDB is given the end of what is read forwards,
  and looks no further.
- RocksDB treats a damaged, cut or missing log as one that ends earlier. So its files are checked against a witness
  before it opens them, and each sync ends with a write of the witness: map_witness.py. A synced write takes 120 us
  without it and 180 us with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from quire.world.damage import DamagedError, Finding
from quire.world.doors import Batch, KeyValue, NotSyncedError
from quire.world.map_tuning import DEFAULT_TUNING, MapTuning
from quire.world.map_witness import MapCheck, WitnessWriter, check_map
from quire.world.real_disk import RealDisk
from quire.world.real_map_options import rocksdb_options

_OWN_FILE = "rocksdict-config.json"
"""File in which rocksdict stores the kind of its keys; we pass it at every opening instead."""


class RealKeyValueMaker:
    def open(
        self,
        path: str,
        *,
        create: bool = True,
        cache_bytes: int = 8 << 20,
        write_buffer_bytes: int = 16 << 20,
        tuning: MapTuning = DEFAULT_TUNING,
    ) -> KeyValue:
        disk = RealDisk()
        if create:
            disk.make_dirs(path)
        elif not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, "no key-value map in this folder", path)
        holder = _hold(path)
        try:
            check = check_map(disk, path)
            if check.damage is not None:
                raise DamagedError(check.damage)
            if check.is_new and not create:
                raise FileNotFoundError(errno.ENOENT, "no key-value map in this folder", path)
            return self._open(
                disk,
                path,
                check,
                holder,
                create=create,
                cache_bytes=cache_bytes,
                write_buffer_bytes=write_buffer_bytes,
                tuning=tuning,
            )
        except BaseException:
            os.close(holder)
            raise

    def _open(
        self,
        disk: RealDisk,
        path: str,
        check: MapCheck,
        holder: int,
        *,
        create: bool,
        cache_bytes: int,
        write_buffer_bytes: int,
        tuning: MapTuning,
    ) -> KeyValue:
        import rocksdict  # imported here and not at the top: see the module head

        options = rocksdb_options(
            rocksdict,
            path,
            create=create,
            cache_bytes=cache_bytes,
            write_buffer_bytes=write_buffer_bytes,
            tuning=tuning,
        )
        # Without a witness a wrong checksum refuses the opening. With one, all synced data is proved already. The data
        # behind it may be anything after a power cut: it ends at the first damage.
        modes = rocksdict.DBRecoveryMode
        options.set_wal_recovery_mode(
            modes.point_in_time() if check.witness is not None else modes.tolerate_corrupted_tail_records()
        )
        with suppress(FileNotFoundError):  # a damaged one would prevent the opening
            os.unlink(os.path.join(path, _OWN_FILE))
        try:
            database = rocksdict.Rdict(path, options, access_type=rocksdict.AccessType.read_write())
        except Exception as error:
            raise _os_error(error) from None
        try:
            if check.witness is not None:
                _check_sequence(path, check.witness.sequence, database.latest_sequence_number())
            witness = WitnessWriter(disk, path, check.witness)
            witness.measure(database.latest_sequence_number())
            database.flush_wal(True)
            witness.begin()
        except BaseException:
            database.close()
            raise
        map_ = RealKeyValue(database, rocksdict.WriteBatch, rocksdict.ReadOptions, witness, holder)
        map_.noticed = tuple(check.findings)
        return map_


def _hold(path: str) -> int:
    """Lock the folder until the returned object is closed: its files are checked before RocksDB locks them."""
    holder = os.open(path, os.O_CLOEXEC | os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(holder)
        raise
    return holder


def _check_sequence(path: str, expected: int, found: int) -> None:
    """Check the second proof, besides the bytes: the map has as many changes as were synced."""
    if found < expected:
        what = f"has {found} changes, and {expected} were synced"
        raise DamagedError(Finding(path, what, "Restore the folder from a copy"))


def _past(prefix: bytes, length: int) -> bytes:
    """Return the lowest key above all keys whose first `length` bytes are `prefix`; empty if there is none."""
    if len(prefix) < length:
        return prefix + b"\0"  # this is a whole key
    following = int.from_bytes(prefix, "big") + 1
    return b"" if following >> 8 * length else following.to_bytes(length, "big")


def _os_error(error: Exception) -> OSError:
    """Convert RocksDB's error, which rocksdict passes on as text, to the error that a file would raise."""
    text = str(error)
    if "No space left" in text or "Disk quota" in text:
        return OSError(errno.ENOSPC, text)
    if "/LOCK" in text:
        return BlockingIOError(errno.EAGAIN, text)
    if "does not exist" in text:
        return FileNotFoundError(errno.ENOENT, text)
    if "already closed" in text:
        return OSError(errno.EBADF, text)
    return OSError(errno.EIO, text)


class RealKeyValue:
    def __init__(
        self,
        database: Any,
        make_batch: Callable[..., Any],
        make_bounds: Callable[[], Any],
        witness: WitnessWriter | None = None,
        holder: int = -1,
    ) -> None:
        """`witness`: None if nothing is written; `holder`: the result of `_hold`, -1 if the folder is not held."""
        self._database = database
        self._make_batch = make_batch
        self._make_bounds = make_bounds
        self._witness = witness
        self._holder = holder
        self._syncing = threading.Lock()
        self._failed: NotSyncedError | None = None
        self.noticed: tuple[Finding, ...] = ()
        # RocksDB stays open, and locked, while an iterator lives: `close` ends the remaining ones.
        self._scans: weakref.WeakSet[Generator[tuple[bytes, bytes], None, None]] = weakref.WeakSet()

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise _os_error(error) from None
        return value

    def batch(self) -> Batch:
        batch: Batch = self._make_batch(raw_mode=True)
        return batch

    def write(self, batch: Batch, *, sync: bool) -> None:
        if self._failed is not None:
            raise NotSyncedError(*self._failed.args)
        try:
            self._database.write(batch)
        except Exception as error:
            refusal = _os_error(error)
            if refusal.errno == errno.EIO:
                # One of its own writes or syncs failed: RocksDB accepts nothing more before it is opened again.
                raise self._fail(refusal) from None
            raise refusal from None
        if sync:
            self._sync()

    def _sync(self) -> None:
        with self._syncing:
            witness = self._witness
            assert witness is not None, "the map is open for reading only"
            try:
                witness.measure(self._database.latest_sequence_number())
                try:
                    self._database.flush_wal(True)
                except Exception as error:
                    raise self._fail(_os_error(error)) from None
                witness.record()
            except NotSyncedError as error:
                raise self._fail(error) from None

    def _fail(self, reason: OSError) -> NotSyncedError:
        """Accept no more batches: the kernel may have dropped data that it could not write, and a later sync would
        succeed without it.
        """
        failed = self._failed = NotSyncedError(reason.errno, f"a sync of the map failed: {reason.strerror}")
        return failed

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        scan = self._backward(start, stop) if reverse else self._forward(start, stop)
        self._scans.add(scan)
        return scan

    def _forward(self, start: bytes, stop: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        bounds = self._make_bounds()
        bounds.set_iterate_upper_bound(stop)
        last = None
        for pair in self._pairs(start, bounds, backwards=False):
            last = pair[0]
            yield pair
        self._check_end(start if last is None else last, bounds, seen=last is not None, backwards=False)

    def _backward(self, start: bytes, stop: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        bounds = self._make_bounds()  # without a bound: with one, a damaged block is not reported in this direction
        last = None
        for pair in self._pairs(stop, bounds, backwards=True):
            last = pair[0]
            if last >= stop:
                continue
            if last < start:
                return
            yield pair
        self._check_end(stop if last is None else last, bounds, seen=last is not None, backwards=True)

    def _pairs(self, key: bytes, bounds: Any, *, backwards: bool) -> Iterator[tuple[bytes, bytes]]:
        try:
            pairs: Iterator[tuple[bytes, bytes]] = self._database.items(
                backwards=backwards, from_key=key, read_opt=bounds
            )
        except Exception as error:
            raise _os_error(error) from None
        return pairs

    def _check_end(self, key: bytes, bounds: Any, *, seen: bool, backwards: bool) -> None:
        """Distinguish the true end of the map from a block that could not be read: OSError (EIO) for the latter."""
        iterator = None
        try:
            iterator = self._database.iter(bounds)
            if backwards:
                iterator.seek_for_prev(key)
            else:
                iterator.seek(key)
            if seen and iterator.valid():
                if backwards:
                    iterator.prev()
                else:
                    iterator.next()
            iterator.status()
        except Exception as error:
            raise _os_error(error) from None
        finally:
            del iterator  # whoever keeps the error keeps this frame, and would keep the map open

    def values(self, start: bytes, count_max: int) -> list[bytes]:
        try:
            return list(islice(self._database.values(from_key=start), count_max))
        except Exception as error:
            raise _os_error(error) from None

    def prefixes(self, start: bytes, stop: bytes, length: int, count_max: int) -> list[bytes]:
        found: list[bytes] = []
        bounds = self._make_bounds()
        bounds.set_iterate_upper_bound(stop)
        iterator = None
        try:
            iterator = self._database.iter(bounds)
            while len(found) < count_max and start < stop:
                iterator.seek(start)
                key = iterator.key()
                if key is None:
                    iterator.status()  # raises if this is not the end, but a block that could not be read
                    break
                prefix = key[:length]
                found.append(prefix)
                start = _past(prefix, length) or stop
        except Exception as error:
            raise _os_error(error) from None
        finally:
            del iterator  # as in `_check_end`
        return found

    def compact(self) -> None:
        try:
            self._database.compact_range(None, None)
        except Exception as error:
            raise _os_error(error) from None

    def close(self) -> None:
        for scan in list(self._scans):
            scan.close()
        holder, self._holder = self._holder, -1
        witness, self._witness = self._witness, None
        try:
            if self._failed is not None:
                with suppress(Exception):  # the failure is already known, and the next opening checks what is on disk
                    self._database.close()
                return
            sequence = self._database.latest_sequence_number() if witness is not None else 0
            self._database.close()  # it writes the data in memory to a file
            if witness is not None:
                witness.measure(sequence)
                witness.record()
        except OSError:
            raise
        except Exception as error:
            raise _os_error(error) from None
        finally:
            if witness is not None:
                witness.close()
            if holder >= 0:
                os.close(holder)
