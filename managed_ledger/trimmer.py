"""Trimmer: deletes the unneeded ledgers of one log, on request and in the background; `trimming` decides which.

LedgersNeverLeak: a ledger is deleted only after the list was read again at its current version and stored without it,
with the intent to delete in the same value. What is not deleted then, the next switch of ledgers or the next open tries
again. The objects of offloaded ledgers are deleted after the ledgers, in the same way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from cursors.topic_log import topic_log
from managed_ledger.errors import (
    ManagedLedgerError,
    ManagedLedgerFencedError,
    ManagedLedgerUnavailableError,
    ObjectError,
)
from managed_ledger.keeping import restored_from
from managed_ledger.log_index import LogIndex
from managed_ledger.offloading import trimmed
from managed_ledger.services import Services
from managed_ledger.stored_list import StoredList
from managed_ledger.tiers import delete_objects, deleted_driver
from managed_ledger.trimming import Retention, trimmable
from managed_ledger.writing.appends import Appends
from managed_ledger.writing.state import State
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.service.log import get_logger

log = get_logger(__name__)


class TrimmedLog(Protocol):
    """Parts of a log that a trimmer uses."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes."""

    def slowest(self) -> Position | None:
        """Return the position behind which no durable cursor needs anything; None without durable cursors."""

    def effective_retention(self) -> Retention: ...

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Forget ledgers removed from the list: nothing may point into them."""


class Trimmer:
    """Trimmer of one log."""

    __slots__ = (
        "_appends",
        "_index",
        "_log",
        "_services",
        "_stored",
        "_tried_at",
        "_trimming",
        "_wanted",
    )

    def __init__(
        self, trimmed: TrimmedLog, services: Services, stored: StoredList, index: LogIndex, appends: Appends
    ) -> None:
        self._log = trimmed
        self._services = services
        self._stored = stored
        self._index = index
        self._appends = appends
        self._tried_at = -1  # value of `_passed` at the last trim
        self._wanted = False
        self._trimming = False

    @property
    def is_busy(self) -> bool:
        """Return whether a trim is under way or wanted in the background."""
        return self._trimming or self._wanted

    def moved(self) -> None:
        """Note that a durable position moved: the first ledgers may be unneeded."""
        ids = self._index.ledger_ids
        if len(ids) > 1 or (ids and self._appends.all_are_closed):
            passed = self._passed()
            if passed >= ids[0] and passed != self._tried_at:
                self.want()

    def _passed(self) -> int:
        """Return the last ledger that every durable cursor has consumed durably; -1 if there is none."""
        slowest = self._log.slowest()
        ids = self._index.ledger_ids
        if slowest is None or not ids:
            return -1
        last = self._index.last_entry_of(slowest.ledger_id)
        at_end = last is not None and slowest.entry_id >= last and slowest.ledger_id != self._index.current_id
        number = bisect_left(ids, slowest.ledger_id) + at_end
        return ids[number - 1] if number else -1

    def want(self) -> None:
        """Trim soon, in the background."""
        self._wanted = True
        if not self._trimming and self._appends.is_usable and self._services.metadata_is_up():
            self._trimming = True
            self._services.nursery.start_soon(self._trim_wanted, name=f"trim {self._log.name}")

    async def _trim_wanted(self) -> None:
        try:
            while self._wanted and self._appends.is_usable:
                self._wanted = False
                await self.trim()
        except ManagedLedgerError as error:
            topic_log(log, self._log.name).warning("ledgers not trimmed", reason=str(error))
        finally:
            self._trimming = False

    async def trim(self, retention: Retention | None = None) -> int:
        """Delete the ledgers that are no longer needed; return how many. `retention`: instead of that of the log.

        Raises ManagedLedgerFencedError, ManagedLedgerUnavailableError (incomplete; a later trim or open completes
        it)."""
        self._appends.check_usable()
        if not self._services.metadata_is_up():
            raise ManagedLedgerUnavailableError(f"{self._log.name} cannot be trimmed: the metadata service is away")
        if self.takes_a_ledger(retention):
            await self._appends.leave_last()
            self._appends.check_usable()
        try:
            async with self._stored.held():
                self._tried_at = self._passed()
                useless = self.useless(retention)
                if not useless:
                    return 0
                await self._stored.check()
                driver = deleted_driver(self._services.objects)
                await self._stored.put(trimmed(self._stored.value, useless, driver=driver))
                self._index.set(self._stored.value.ledgers, self._index.current_id)
                self._log.forget_ledgers(useless)
        except ManagedLedgerFencedError as error:
            self._appends.fence(str(error))
            raise
        except MetadataError as error:
            raise ManagedLedgerUnavailableError(f"{self._log.name} cannot be trimmed: {error}") from error
        await self.delete(useless)
        await self.delete_objects()
        return len(useless)

    def useless(self, retention: Retention | None = None) -> list[int]:
        """Return the ledgers that can be deleted in the current state of the log."""
        ledgers = self._stored.value.ledgers
        return self._useless(ledgers[-1].ledger_id, retention) if len(ledgers) > 1 else []

    def takes_a_ledger(self, retention: Retention | None = None) -> bool:
        """Return whether all ledgers can go if a new one follows them: a list without ledgers has no place for a
        position."""
        ledgers = self._stored.value.ledgers
        return bool(ledgers) and self._appends.all_are_closed and len(self._useless(-1, retention)) == len(ledgers)

    def _useless(self, current_ledger_id: int, retention: Retention | None) -> list[int]:
        if restored_from(self._stored.value.properties):
            return []
        return trimmable(
            self._stored.value.ledgers,
            current_ledger_id,
            self._log.slowest(),
            retention or self._log.effective_retention(),
            total_size=self._log.size,
            now_ms=self._services.world.clock.wall_ms(),
        ).found

    async def delete(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that the stored list names for deletion, as far as possible now."""
        done: list[int] = []
        for ledger_id in ledger_ids:
            if self._appends.state is State.FENCED:
                return
            try:
                await self._services.ledgers.delete(ledger_id)
                done.append(ledger_id)
            except NoSuchLedgerError:
                done.append(ledger_id)
            except (LedgerError, MetadataError) as error:
                topic_log(log, self._log.name).warning("ledger not deleted yet", ledger=ledger_id, reason=str(error))
        with suppress(ManagedLedgerFencedError, MetadataError):  # whoever stores the list next finds them gone
            async with self._stored.held():
                self._stored.change_of(lambda value: value.deleted(done))

    async def delete_objects(self) -> bool:
        """Delete the objects of trimmed ledgers that the stored list names for deletion; return False if some are
        left."""
        if self._stored.value.trimmed and self._appends.state is not State.FENCED:
            try:
                await delete_objects(self._services.objects, self._stored)
            except ObjectError as error:
                topic_log(log, self._log.name).warning("objects of trimmed ledgers not deleted yet", reason=str(error))
                return False
        return True

    def switched(self) -> None:
        """Delete ledgers named for deletion after a switch: empty ones, and ones that could not be deleted before."""
        left = self._stored.value.deleting
        if left:
            self._services.nursery.start_soon(self.delete, left, name=f"left over of {self._log.name}")
        self.want()

    def delete_unneeded(self, ledger_id: int) -> None:
        """Delete a ledger that was made ahead and never used."""
        self._services.nursery.start_soon(self.delete, [ledger_id], name=f"unneeded ledger of {self._log.name}")
