"""The doors to the world: narrow protocols that every server takes instead of `os`, `time`, `socket` and threads.

There are two implementations: `quire.world.real.real_world()` and the seeded one in `simulation/`. One conformance
suite (tests/conformance/) tests both against the contracts below.

Rules that the simulator depends on:
- Methods of `Disk`, `File` and `KeyValue` block. On a running server they are called only inside a job given to
  `Offload` (or while starting, before anything is served).
- Time that passes is trio's (`trio.current_time()`, `trio.sleep`, `trio.move_on_after`); `Clock` only returns dates.
- Ids and choices come from `World.rng`. Sets of objects or strings are never iterated.
- Every task gets a `name=`.
"""

from __future__ import annotations

import random  # noqa: TID251 - for the type
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from quire.world.damage import Finding
from quire.world.faults import Faults
from quire.world.map_tuning import DEFAULT_TUNING, MapTuning
from quire.world.socket_options import DEFAULT_OPTIONS, SocketOptions

Buffer: TypeAlias = bytes | bytearray | memoryview
Rng: TypeAlias = random.Random
"""Random generator: passed down, never created by users."""

T = TypeVar("T")
Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class Clock(Protocol):
    """Clock for dates. Durations and deadlines use trio's clock."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970.

        They may jump either way, so they are never used for ordering or expiry of leases.
        """


class NotSyncedError(OSError):
    """A sync failed: it is unknown whether the data survives a crash, and later syncs will not reveal it.

    Final for all data written since the last good sync.
    """


class File(Protocol):
    """One open file. Every method blocks. `OSError` as the real world raises it (ENOSPC, EIO ...)."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`; not durable before `sync`. A failure may leave a prefix written."""

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write all `parts`, end to end, at `offset`; any number of parts. Returns the bytes written."""

    def pwritev_past_cache(self, parts: Sequence[Buffer], offset: int) -> int:
        """As `pwritev`, for data that will hardly be read soon: it need not stay in the page cache.

        Bypasses the page cache where that is possible and cheaper. One call of a file at a time.
        """

    def pwritev_sync(self, parts: Sequence[Buffer], offset: int) -> None:
        """As `pwritev` then `sync`, in one system call where there is one.

        OSError as from `pwritev`: only a prefix was written. NotSyncedError: as from a failed `sync`.
        """

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`; fewer only at the end of the file."""

    def sync(self) -> None:
        """Make everything written so far durable (fdatasync).

        After a failure the file's unsynced data counts as lost.
        """

    def size(self) -> int:
        """Return the length of the file in bytes, preallocated space included."""

    def forget(self, offset: int, size: int) -> None:
        """Advise that the synced range will rarely be read, so the kernel need not cache it.

        Only a hint; never fails.
        """

    def advise(self, *, scattered: bool) -> None:
        """Advise the kernel to read nothing ahead of what is asked for, or as it likes.

        Only a hint; never fails.
        """

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to `size` bytes."""

    def preallocate(self, offset: int, size: int) -> None:
        """Reserve zeroed space [offset, offset+size), extending the file; later writes there need no new blocks."""

    def close(self) -> None: ...


class Board(Protocol):
    """A few sectors of a file in memory that is shared with the kernel."""

    def store(self, offset: int, data: bytes) -> None:
        """Store `data` there, within one sector, at once and without errors.

        It survives the death of the process. It survives a power cut only if a `sync` followed, or by chance, whole or
        torn.
        """

    def sync(self) -> None:
        """Make the stored data durable. OSError."""

    def close(self) -> None: ...


class DiskLock(Protocol):
    """Lock that is held until released or until the process dies."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Tree of files. Paths are absolute strings.

    A created or renamed name is durable after `sync_dir` of its folder.
    """

    def open(
        self, path: str, *, create: bool = False, writable: bool = True, direct: bool = False, scattered: bool = False
    ) -> File:
        """Open for random access. `create` creates a missing file; otherwise FileNotFoundError.

        `direct`: the caller writes multiples of 512 bytes, at multiples of 512, and reads nothing through this file.
        Writes bypass the page cache where possible.

        `scattered`: nothing is read ahead of what is asked for."""

    def read(self, path: str) -> bytes:
        """Read the whole of a small file; FileNotFoundError."""

    def board(self, path: str) -> Board:
        """Share an existing small file that is long enough for all data ever stored; FileNotFoundError."""

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file durably: temporary file, fsync, rename, fsync of the folder. Old or new, never torn."""

    def exists(self, path: str) -> bool: ...

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; FileNotFoundError."""

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents, durably; no effect if it exists."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name in the same file system; FileExistsError if `new` exists."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder; `OSError` with ENOTEMPTY if it is not empty."""

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """Return the bytes that may still be written in the file system of `path`."""

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system of `path`."""

    def device(self, path: str) -> int:
        """Return the number of the file system of `path`: two paths with the same number share their space."""

    def files_kept_open(self) -> int:
        """Return how many files a cache of open files may keep, at least 4: a part of what the process may have open.

        Caches ask again whenever they grow, since the limit may change while the process runs.
        """

    def sectors_read(self) -> int | None:
        """Return the sectors of 512 bytes that the calling thread has read from disks so far, not from the page cache.

        None if the system does not count them.
        """

    def lock(self, path: str) -> DiskLock:
        """Take the lock file `path`; `BlockingIOError` if another process (or host) holds it."""


class Batch(Protocol):
    """Changes that are applied together or not at all."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete start <= key < stop."""


class KeyValue(Protocol):
    """An ordered map of bytes in a folder. Blocking. Unsynced batches may vanish in a crash, always as a suffix."""

    @property
    def noticed(self) -> Sequence[Finding]:
        """Findings of the opening: damage that loses no data, for the log."""

    def get(self, key: bytes) -> bytes | None: ...

    def batch(self) -> Batch: ...

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply a batch. With `sync` it and every batch before it are durable on return.

        OSError: for example, no room; the same call may be tried again. NotSyncedError: the map accepts no more
        batches, and reopening it shows its content.
        """

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs with start <= key < stop in order (or in reverse order); a snapshot is not promised."""

    def values(self, start: bytes, count_max: int) -> list[bytes]:
        """Return the values of the first `count_max` pairs with a key of `start` or more, in order.

        Faster than `scan`. Fewer values do not prove that the map ends: it may be damaged there, as `scan` shows.
        """

    def prefixes(self, start: bytes, stop: bytes, length: int, count_max: int) -> list[bytes]:
        """Return the first `length` bytes of the keys with start <= key < stop: the lowest `count_max` different ones,
        in order. A shorter key is returned whole.

        Takes one seek for each, however many keys have it. OSError.
        """

    def compact(self) -> None:
        """Reclaim the space of deleted ranges."""

    def close(self) -> None: ...


class KeyValueMaker(Protocol):
    def open(
        self,
        path: str,
        *,
        create: bool = True,
        cache_bytes: int = 8 << 20,
        write_buffer_bytes: int = 16 << 20,
        tuning: MapTuning = DEFAULT_TUNING,
    ) -> KeyValue:
        """Open the map kept in folder `path`. The real one is RocksDB (bytewise comparator, raw keys and values), with
        so much memory for what it reads, and for what is written and not yet in a table.

        DamagedError: synced data is missing or changed; nothing was modified. FileNotFoundError: there is no map, and
        `create` is False. BlockingIOError: it is open already."""


class Stream(Protocol):
    """One connection. One task awaits reads. Writes are tried at once, and waited for only when the peer is slow."""

    @property
    def peer(self) -> str: ...

    @property
    def peer_certificate(self) -> bytes | None:
        """Return the certificate that the peer proved to have, in DER, verified against the trusted authorities.

        None without TLS, from a peer that gave none, or if it was not verified.
        """

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        """Wait for bytes, put them at the start of `buffer`, return their number; 0 at the end. OSError if broken.

        `at_least`: the caller cannot use fewer bytes and need not be woken for them. Only a hint: fewer may be
        returned. `buffer` is written only in the step that returns, so connections of one loop may share it."""

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        """Send as much of `parts`, end to end, as the peer's window accepts, without waiting; return the bytes sent (0:
        none now).

        Any number of parts; the implementation joins or scatters. After a call that sent fewer bytes than it was given,
        the next call begins with those that were not sent. OSError if broken.
        """

    async def wait_writable(self) -> None:
        """Wait until `send_nowait` may send something."""

    def close(self) -> None:
        """Close at once; no effect the second time. A waiting `receive_into` returns 0 or raises OSError."""


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """Return the actual host and port."""

    @property
    def capacity(self) -> int:
        """Number of connections for which the process has descriptors, besides its files; 0: no bound."""

    async def accept(self) -> Stream:
        """Wait for the next connection.

        OSError: EMFILE, ENFILE, ENOBUFS or ENOMEM if the machine has no resources for it, which may pass; any other
        when the listener is closed.
        """

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Listener:
        """Port 0 picks a free one. OSError (EADDRINUSE) if taken.

        `options`: of the connections."""

    async def connect(self, host: str, port: int) -> Stream:
        """OSError if refused. The caller sets the deadline."""


class Lane(Protocol[Item_contra]):
    """Worker that runs a job over all items added since its last run, in order: natural group commit."""

    def put(self, item: Item_contra) -> None:
        """Add an item without blocking. It is an error after `aclose`."""

    async def aclose(self) -> None:
        """Run the queued items, report them, stop. No item is dropped."""


class GivenUpError(OSError):
    """The caller of `Offload.give_up` no longer waits for a job that has begun."""


class Offload(Protocol):
    """Runs blocking work off the event loop: in threads in the real world, inline after a seeded delay in the
    simulator.
    """

    async def run(self, job: Callable[[], T], *, name: str = "") -> T:
        """Run `job` in some worker; not cancellable once begun. GivenUpError after `give_up`."""

    def give_up(self) -> None:
        """Stop waiting for all jobs, even for the end of lanes: a disk does not answer, and the process ends."""

    def lane(
        self,
        name: str,
        job: Callable[[list[Item]], T],
        done: Callable[[list[Item], T | None, BaseException | None], None],
    ) -> Lane[Item]:
        """Return a worker with a thread of its own.

        It takes all queued items, calls `job(items)` off the loop, then `done(items, result, error)` on the loop, in
        order. Meanwhile new items queue up for the next run. `done` must not raise: an exception is a fault, which ends
        the server.
        """


@dataclass(frozen=True, slots=True)
class World:
    """All access of a server to the outside besides its arguments."""

    clock: Clock
    disk: Disk
    key_value: KeyValueMaker
    network: Network
    offload: Offload
    rng: Rng
    faults: Faults = field(default_factory=Faults)
    """Exceptions of callbacks that belong to no task."""
