"""Closed ledgers of a log, read from bookies or from the object that offloading has made of them.

    stored of the ledger                 tiered-storage-first    bookkeeper-first
    no object, or of another driver      bookies                 bookies
    object complete                      object, bookies         bookies, object
    object complete, bookies have none   object                  object

Objects of ledgers that left the list are deleted by the list that names them, as ledgers are: first the list is stored
without the ledger, then the object goes. So a kill in between leaves an object that the next round or owner deletes.

The second of two is asked if the first one fails, and then stays first until the reader is opened again: a damaged
object is not read anew at each read. An object gives the bytes that the bookies had, or an error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from cursors.doors import Ledgers, Readable
from cursors.topic_log import topic_log
from managed_ledger.errors import ManagedLedgerFencedError, ObjectError, OffloadRefusedError
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.offloading import Offloaded, state_of
from managed_ledger.stored_list import StoredList
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataError
from quire.service.log import get_logger

log = get_logger(__name__)

_BOOKIES: Final = "bookies"
_OBJECT: Final = "object"


class ObjectPlace(NamedTuple):
    """A ledger's object, and what it must have."""

    log_name: str
    ledger_id: int
    uid: str
    entries: int
    size: int
    """Bytes of payload of the whole ledger."""

    @classmethod
    def of(cls, log_name: str, info: LedgerInfo, state: Offloaded) -> ObjectPlace:
        return cls(log_name, info.ledger_id, state.uid, info.entries, info.size)


class Objects(Protocol):
    """Objects of offloaded ledgers. Reading one is off the event loop, in bounded memory."""

    @property
    def driver(self) -> str:
        """Name of the kind of storage in the ledger lists."""

    @property
    def are_first(self) -> bool:
        """True if an object is read even though bookies have the ledger."""

    @property
    def deletion_lag_ms(self) -> int:
        """Time after which bookies may delete a ledger that has an object; negative: they never do."""

    async def open(self, place: ObjectPlace) -> Readable:
        """Open an object, whose reads raise the same. Raises ObjectError."""

    async def verify(self, place: ObjectPlace) -> None:
        """Read the whole object. Raises ObjectError: it is not the ledger, byte for byte."""

    @property
    def are_deleted(self) -> bool:
        """True if the object of a ledger is deleted when the ledger leaves its log."""

    async def delete(self, places: Sequence[ObjectPlace]) -> None:
        """Delete objects of one log, as far as they exist; durable on return. Raises ObjectError: some may be left."""


DELETED_AT_ONCE: Final = 100
"""Objects of one call of `Objects.delete`."""


def deleted_driver(objects: Objects | None) -> str:
    """Return the kind of storage whose objects are deleted with their ledgers; empty: none."""
    return objects.driver if objects is not None and objects.are_deleted else ""


async def delete_objects(objects: Objects | None, stored: StoredList) -> None:
    """Delete the objects that a stored list names for deletion. Raises ObjectError: some may be left."""
    driver = deleted_driver(objects)
    states = [(info, state_of(info)) for info in stored.value.trimmed if driver]
    named = [ObjectPlace.of(stored.name, info, state) for info, state in states if state.driver == driver]
    if objects is None:
        return
    for first in range(0, len(named), DELETED_AT_ONCE):
        batch = named[first : first + DELETED_AT_ONCE]
        await objects.delete(batch)
        with suppress(ManagedLedgerFencedError, MetadataError):  # the next write, or the next owner, finds them gone
            async with stored.held():
                stored.value = stored.value.objects_deleted([place.ledger_id for place in batch])


class ClosedLedgers:
    """Opening of the closed ledgers of one log."""

    __slots__ = ("_ledgers", "_objects", "_stored")

    def __init__(self, ledgers: Ledgers, objects: Objects | None, stored: StoredList) -> None:
        self._ledgers = ledgers
        self._objects = objects
        self._stored = stored

    async def open(self, ledger_id: int, *, recover: bool) -> Readable:
        """Return a reader of a ledger. Raises LedgerError, MetadataError, ObjectError."""
        info = self.info(ledger_id)
        if info is None or not info.offload:
            return await self._ledgers.open(ledger_id, recover=recover)
        return _OffloadedLedger(self, ledger_id)

    def info(self, ledger_id: int) -> LedgerInfo | None:
        """Return the ledger as the list has it now; None: it has left the list."""
        found = self._stored.value.ledgers
        at = bisect_left(found, ledger_id, key=attrgetter("ledger_id"))
        return found[at] if at < len(found) and found[at].ledger_id == ledger_id else None

    def sources(self, ledger_id: int) -> list[str]:
        """Return where the ledger is to be read, in order. Raises ObjectError: this broker cannot read it."""
        info = self.info(ledger_id)
        try:
            state = Offloaded() if info is None else state_of(info)
        except OffloadRefusedError:
            state = Offloaded()
        objects = self._objects
        found = [] if state.bookkeeper_deleted else [_BOOKIES]
        if state.complete and objects is not None and objects.driver == state.driver:
            found.insert(0 if objects.are_first else len(found), _OBJECT)
        if not found:
            raise ObjectError(
                f"ledger {ledger_id} of {self._stored.name} is in tiered storage only, as {state.uid} of the driver "
                f"{state.driver!a}: "
                + (
                    "set managedLedgerOffloadDriver and fileSystemURI"
                    if objects is None
                    else f"this broker reads {objects.driver} only"
                )
            )
        return found

    async def open_at(self, source: str, ledger_id: int) -> Readable:
        """Open a ledger at one of its sources. Raises LedgerError, MetadataError, ObjectError."""
        if source == _BOOKIES:
            return await self._ledgers.open(ledger_id, recover=False)
        info, objects = self.info(ledger_id), self._objects
        if info is None or objects is None:
            raise ObjectError(f"ledger {ledger_id} of {self._stored.name} was deleted")
        return await objects.open(ObjectPlace.of(self._stored.name, info, state_of(info)))

    def note(self, source: str, ledger_id: int, error: Exception) -> None:
        """Log that a source has failed."""
        topic_log(log, self._stored.name).warning(
            "offloaded ledger not read from its object"
            if source == _OBJECT
            else "offloaded ledger not read from its bookies",
            ledger=ledger_id,
            reason=str(error),
        )


class _OffloadedLedger:
    """Reader of a ledger that has, or may have, an object."""

    __slots__ = ("_closed_ledgers", "_failed", "_ledger_id", "_opened")

    def __init__(self, closed_ledgers: ClosedLedgers, ledger_id: int) -> None:
        self._closed_ledgers = closed_ledgers
        self._ledger_id = ledger_id
        self._opened: dict[str, Readable] = {}
        self._failed: set[str] = set()

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        sources = self._closed_ledgers.sources(self._ledger_id)
        sources.sort(key=self._failed.__contains__)
        for number, source in enumerate(sources, 1):
            try:
                reader = self._opened.get(source)
                if reader is None:
                    reader = self._opened[source] = await self._closed_ledgers.open_at(source, self._ledger_id)
                return await reader.read(first, last, size_max=size_max)
            except (LedgerError, MetadataError, ObjectError) as error:
                self._opened.pop(source, None)
                if source not in self._failed:
                    self._failed.add(source)
                    self._closed_ledgers.note(source, self._ledger_id, error)
                if number == len(sources):
                    raise
        raise AssertionError("there is at least one source")
