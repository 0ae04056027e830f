"""Fences and explicit LACs of a bookie: into the storage, and into the journal, whose sync answers them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from bookie.directories.journals import LedgerJournal
from bookie.directories.storage import LedgerStorage
from bookie.errors import BookieError, JournalFailedError
from bookie.fencing import FenceTable
from bookie.journal.format import ExplicitLac, Fence
from bookie.journal.group_writer import OnDurable
from bookie.last_confirmed import LacTable
from bookie.requests import check_fence, check_write_lac, lac_of_package
from bookie.stats import BookieStats
from quire.wire.bookkeeper.v2 import Rc


class FactsBookie(Protocol):
    """The part of the bookie that fences and LACs use."""

    @property
    def storage(self) -> LedgerStorage: ...

    @property
    def journal(self) -> LedgerJournal: ...

    @property
    def fences(self) -> FenceTable: ...

    @property
    def lacs(self) -> LacTable: ...

    @property
    def stats(self) -> BookieStats: ...

    @property
    def read_only(self) -> bool: ...

    def is_usable(self, ledger_id: int) -> bool:
        """Return whether the ledger's directory can be used."""


def fence(bookie: FactsBookie, ledger_id: int, key: bytes | None, done: Callable[[Rc], None]) -> None:
    """As `Bookie.fence`."""
    storage = bookie.storage.of(ledger_id)
    known_key = storage.master_key(ledger_id) or None
    rc = check_fence(known_key, key)
    if rc is Rc.OK and not bookie.is_usable(ledger_id):
        rc = Rc.IO
    if rc is not Rc.OK or key is None or not bookie.fences.needs_wait(ledger_id, storage.is_fenced(ledger_id)):
        done(rc)
        return
    journal = bookie.journal.of(ledger_id)
    if not journal.has_room(0):
        done(Rc.TOO_MANY_REQUESTS)
        return
    if known_key is None:
        storage.set_master_key(ledger_id, key)
    storage.set_fenced(ledger_id)
    bookie.lacs.fenced(ledger_id)
    if not bookie.fences.wait(ledger_id, partial(_tell, done)):
        return
    bookie.stats.fences += 1
    written = partial(bookie.fences.written, ledger_id)
    try:
        journal.append(Fence(ledger_id), written, key)
    except JournalFailedError as error:
        written(error)


def write_lac(bookie: FactsBookie, ledger_id: int, key: bytes, package: bytes, on_durable: OnDurable) -> Rc:
    """As `Bookie.write_lac`."""
    storage = bookie.storage.of(ledger_id)
    journal = bookie.journal.of(ledger_id)
    known_key = storage.master_key(ledger_id) or None
    rc = check_write_lac(known_key, key, bookie.read_only, ledger_id, package)
    if rc is not Rc.OK:
        return rc
    if not journal.has_room(len(package)):
        return Rc.TOO_MANY_REQUESTS
    if journal.failed is not None or not bookie.is_usable(ledger_id):
        return Rc.IO
    if known_key is None:
        storage.set_master_key(ledger_id, key)
    known = storage.explicit_lac(ledger_id)
    if known is not None and lac_of_package(known) > lac_of_package(package):
        package = known
    storage.set_explicit_lac(ledger_id, package)
    bookie.lacs.raised(ledger_id, lac_of_package(package))
    journal.append(ExplicitLac(ledger_id, package), on_durable, key)
    bookie.stats.explicit_lacs += 1
    return rc


def _tell(done: Callable[[Rc], None], error: BookieError | None) -> None:
    done(Rc.OK if error is None else Rc.IO)
