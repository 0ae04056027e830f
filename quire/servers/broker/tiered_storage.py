"""Tiered storage of a broker: the files of `scripts/pipelines/offload` in a folder that every broker sees. The
file of a ledger is deleted when its topic has the ledger no more.

Files are read in a few threads, and each read has a deadline: a folder may be a mount whose server is away. Memory: one
row group (8 MB and one entry) of each of the FILES_MAX files that were read last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

import trio

from cursors.doors import Readable
from managed_ledger.errors import ObjectError
from managed_ledger.tiers import ObjectPlace, Objects
from quire.offload.folder import discard, ledger_path, topic_folder
from quire.servers.broker.tiered_metrics import ObjectCounts
from quire.service.config import MS, conf_key
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.wire.pulsar.errors import InvalidTopicNameError
from quire.wire.pulsar.names import TopicName

if TYPE_CHECKING:
    from quire.offload.parquet import OffloadedLedger

T = TypeVar("T")

log = get_logger(__name__)

DRIVER: Final = "quire-parquet"
"""Name of this kind of storage, in the ledger lists too."""
FILES_MAX: Final = 16
"""Files that are kept open."""
THREADS_MAX: Final = 4
READ_S: Final = 30.0
"""Time after which a read of one row group has failed."""
IN_USE_S: Final = 10.0
"""Time for which a deletion waits until an offloading of the same topic ends."""
IN_USE_RETRY_S: Final = 0.2
_OBJECT_FIRST: Final = "tiered-storage-first"
_BOOKIES_FIRST: Final = "bookkeeper-first"


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStorageKeys:
    """Keys of tiered storage. Raises ValueError if they contradict each other."""

    driver: str = conf_key(
        "managedLedgerOffloadDriver",
        "",
        doc="Kind of storage that offloaded ledgers are read from. quire-parquet: the files that "
        "scripts/pipelines/offload has written; needs pyarrow. Empty: ledgers are read from bookies only.",
    )
    uri: str = conf_key(
        "fileSystemURI",
        "",
        doc="Folder of the files, --out of scripts/pipelines/offload, as file:///FOLDER. Every broker must see the "
        "same folder there.",
    )
    priority: str = conf_key(
        "managedLedgerDataReadPriority",
        _OBJECT_FIRST,
        choices=(_OBJECT_FIRST, _BOOKIES_FIRST),
        doc="Where a ledger is read that both have. The other one is read if that fails.",
    )
    deletion_lag_ms: int = conf_key(
        "managedLedgerOffloadDeletionLagMs",
        -1,
        unit=MS,
        minimum=-1,
        doc="Time after which a ledger that was offloaded is deleted from its bookies; its file is then the only copy. "
        "-1: never.",
    )

    deletes: bool = conf_key(
        "quireDeleteTrimmedFiles",
        True,
        doc="Delete the file of a ledger when its topic has the ledger no more: after its retention, by truncate, or "
        "because the topic is deleted. Needs the right to write to the folder. false: files stay until "
        "scripts/pipelines/offload --remove-trimmed removes them.",
    )

    def __post_init__(self) -> None:
        if self.driver not in ("", DRIVER):
            raise ValueError(
                f"managedLedgerOffloadDriver={self.driver}: ledgers are read from objects of {DRIVER} only; "
                "leave it empty if there are none"
            )
        if self.driver and self.folder is None:
            raise ValueError(
                f"fileSystemURI={self.uri}: must be file:///FOLDER, the folder that scripts/pipelines/offload writes to"
            )

    @property
    def folder(self) -> Path | None:
        """Return the folder; None: the URI names none.

        >>> TieredStorageKeys(uri="file:///mnt/a%20b").folder
        PosixPath('/mnt/a b')
        >>> TieredStorageKeys(uri="hdfs://host/a").folder, TieredStorageKeys(uri="file:a").folder
        (None, None)
        """
        parts = urlsplit(self.uri)
        path = Path(unquote(parts.path))
        fits = parts.scheme == "file" and parts.netloc in ("", "localhost") and not parts.query and not parts.fragment
        return path if fits and path.is_absolute() else None

    def check(self) -> None:
        """Check that this machine can obey the keys. Raises ConfigError."""
        if self.driver and find_spec("pyarrow") is None:
            raise ConfigError(
                f"managedLedgerOffloadDriver={self.driver} needs pyarrow: install quire-broker[sql], or leave it empty"
            )


async def open_tiered_storage(keys: TieredStorageKeys) -> TieredStorage | None:
    """Return the storage; None: there is none. Raises ConfigError."""
    keys.check()
    folder = keys.folder
    if not keys.driver or folder is None:
        return None
    if not await trio.to_thread.run_sync(folder.is_dir):
        log.warning("there is no folder of offloaded ledgers", folder=str(folder))
    storage = TieredStorage(
        folder,
        are_first=keys.priority == _OBJECT_FIRST,
        deletion_lag_ms=keys.deletion_lag_ms,
        are_deleted=keys.deletes,
    )
    await trio.to_thread.run_sync(_load)
    return storage


def counts_of(objects: Objects | None) -> ObjectCounts | None:
    """Return the counts of a storage; None: there is none."""
    return objects.counts if isinstance(objects, TieredStorage) else None


def _load() -> type[OffloadedLedger]:
    """Import the reader, which takes a while."""
    from quire.offload.parquet import OffloadedLedger

    return OffloadedLedger


class TieredStorage:
    """Objects of offloaded ledgers; see `managed_ledger.tiers.Objects`."""

    driver: Final = DRIVER

    def __init__(self, folder: Path, *, are_first: bool, deletion_lag_ms: int, are_deleted: bool = True) -> None:
        self._folder = folder
        self.are_first = are_first
        self.deletion_lag_ms = deletion_lag_ms
        self.are_deleted = are_deleted
        self._files: dict[ObjectPlace, _File] = {}
        """The one that was read last is the last one."""
        self.counts = ObjectCounts()
        self._threads = trio.CapacityLimiter(THREADS_MAX)

    async def open(self, place: ObjectPlace) -> Readable:
        """Open a file. Raises ObjectError."""
        with self.counts.reading(place.log_name, lambda counts: counts.opens):
            await self.read(place, _File.opened)
        return _Reader(self, place)

    async def verify(self, place: ObjectPlace) -> None:
        """Read a whole file. Raises ObjectError: it is not the ledger, byte for byte.

        The file is opened anew: what is kept in memory proves nothing about it."""
        file = self._file(place)
        size = due = 0
        while due < place.entries:
            with self.counts.reading(place.log_name, lambda counts: counts.reads) as counts:
                found, due = await self._in_thread(place, partial(file.size_from, due))
                counts.bytes_read += found
            size += found
        if size != place.size:
            self.counts.of(place.log_name).read_errors += 1
            raise ObjectError(f"{file.path} has {size} bytes of entries, and ledger {place.ledger_id} has {place.size}")

    async def delete(self, places: Sequence[ObjectPlace]) -> None:
        """Delete files of one topic, as far as they exist. Raises ObjectError: some may be left."""
        for place in places:
            self._files.pop(place, None)  # an open file keeps its room on the disk
        counts = self.counts.of(places[0].log_name)
        try:
            await self._delete(places)
        except ObjectError:
            counts.deletions_failed += len(places)
            raise
        counts.deleted += len(places)

    async def _delete(self, places: Sequence[ObjectPlace]) -> None:
        topic, gone = self._file(places[0]).topic, {(place.ledger_id, place.uid) for place in places}
        deadline = trio.current_time() + IN_USE_S
        while not await self._in_thread(places[0], partial(discard, self._folder, topic, gone)):
            if trio.current_time() > deadline:
                raise ObjectError(f"files of {topic} are not deleted while it is being offloaded: tried again later")
            await trio.sleep(IN_USE_RETRY_S)

    def _file(self, place: ObjectPlace) -> _File:
        """Raises ObjectError: the log is not of a topic."""
        try:
            return _File(self._folder, place)
        except InvalidTopicNameError as error:
            raise ObjectError(str(error)) from error

    async def read(self, place: ObjectPlace, job: Callable[[_File], T]) -> T:
        """Run a job with a file, in a thread. Raises ObjectError."""
        file = self._files.pop(place, None) or self._file(place)
        self._files[place] = file
        if len(self._files) > FILES_MAX:
            del self._files[next(iter(self._files))]
        try:
            async with file.lock:
                return await self._in_thread(place, lambda: job(file))
        except BaseException:
            if self._files.get(place) is file:
                del self._files[place]
            raise

    async def _in_thread(self, place: ObjectPlace, job: Callable[[], T]) -> T:
        """Raises ObjectError."""
        try:
            with trio.fail_after(READ_S):
                return await trio.to_thread.run_sync(
                    job, limiter=self._threads, thread_name="offloaded ledger", abandon_on_cancel=True
                )
        except trio.TooSlowError:
            raise ObjectError(
                f"{self._folder} did not answer in {READ_S:.0f} s, for the file of ledger {place.ledger_id}"
            ) from None
        except Exception as error:  # a decoder has many, and none of them may end a broker
            raise ObjectError(f"the file of ledger {place.ledger_id}: {error}") from error


class _Reader:
    """Reader of one file; see `cursors.doors.Readable`."""

    def __init__(self, storage: TieredStorage, place: ObjectPlace) -> None:
        self._storage = storage
        self._place = place

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        storage, place = self._storage, self._place
        with storage.counts.reading(place.log_name, lambda counts: counts.reads) as counts:
            found = await storage.read(place, lambda file: file.entries(first, last, size_max))
            counts.bytes_read += sum(map(len, found))
        return found


class _File:
    """A file, opened at its first use, and closed with the last reference: a thread that does not end has one.
    Blocking."""

    def __init__(self, folder: Path, place: ObjectPlace) -> None:
        self.topic = TopicName.from_managed_ledger_path(place.log_name).full
        self.path = ledger_path(topic_folder(folder, self.topic), place.ledger_id, place.uid)
        self.lock = trio.Lock()
        self._place = place
        self._ledger: OffloadedLedger | None = None

    def opened(self) -> OffloadedLedger:
        """Return the open file. Raises OffloadedLedgerError."""
        if self._ledger is None:
            self._ledger = _load().of(
                self.path, self.topic, self._place.ledger_id, entries=self._place.entries, uid=self._place.uid
            )
        return self._ledger

    def entries(self, first: int, last: int, size_max: int) -> list[memoryview]:
        return [memoryview(entry) for entry in self.opened().read(first, last, size_max)]

    def size_from(self, first: int) -> tuple[int, int]:
        """Return the bytes of the entries of a row group from `first` on, and the entry after them."""
        found = self.opened().read(first, self._place.entries - 1, self._place.size + 1)
        return sum(map(len, found)), first + len(found)
