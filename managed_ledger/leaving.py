"""Deletion of offloaded ledgers from their bookies, in all logs of a broker, one ledger at a time; and of the
objects of trimmed ledgers that could not be deleted with them.

    verified    this broker has read the whole object: every entry, and as many bytes as the ledger has
    stored      the list says that bookies have the ledger no more, and names it for deletion, in one compare-and-set
    deleted     from the bookies, by what deletes everything that a list names for deletion

Why this is hard: the object is then the only copy. A broker that is killed before the list is stored has changed
nothing; after that no broker reads the ledger from bookies, and any owner may delete it, now or when it opens the log.
A broker that has lost the log cannot store the list. An object that cannot be read deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import trio

from cursors.topic_log import topic_log
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import due_to_leave, left, state_of
from managed_ledger.services import Services
from managed_ledger.tiers import ObjectPlace, Objects
from quire.service.log import get_logger

log = get_logger(__name__)

RETRY_S: Final = 3600.0
"""Time after which an object that could not be read is read again."""
FAILED_MAX: Final = 10_000
"""Objects of which that is known; above it they are all tried again."""
LOOKS_MAX: Final = 200
"""Logs that are looked at in one step of the event loop."""
FAILURES_MAX: Final = 5
"""Logs of a round whose objects could not be deleted, after which the storage counts as away."""


class Leaving:
    """Deletes what is due; see the module."""

    def __init__(self, services: Services, objects: Objects, logs: Callable[[], Iterable[ManagedLedger]]) -> None:
        """`logs`: returns the open ones."""
        self._services = services
        self._objects = objects
        self._logs = logs
        self._failed: dict[str, float] = {}
        """Uids of objects that could not be read, names of logs whose objects could not be deleted, and trio's time at
        which they are tried again."""

    async def run(self) -> None:
        """Look for ledgers that are due, at the interval of retention, until cancelled."""
        while True:
            await trio.sleep(self._services.config.retention_check_s)
            await self.go_round()

    async def go_round(self) -> None:
        """Delete the ledgers that are due now, and what is left of trimmed ones."""
        failures = 0
        for number, each in enumerate(list(self._logs()), 1):
            if not number % LOOKS_MAX:
                await trio.lowlevel.checkpoint()
            if each.stored_list.trimmed and failures < FAILURES_MAX:
                failures += not await self._deletes_objects(each)
            for info in self._due(each):
                if not each.is_usable or not self._services.metadata_is_up():
                    break
                try:
                    await self._leave(each, info)
                except ManagedLedgerError as error:
                    self._note_failed(state_of(info).uid)
                    topic_log(log, each.name).warning(
                        "offloaded ledger stays in its bookies", ledger=info.ledger_id, reason=str(error)
                    )

    async def _deletes_objects(self, each: ManagedLedger) -> bool:
        """Delete the objects of trimmed ledgers; return False if that has failed."""
        if not each.is_usable or self._failed.get(each.name, 0) > trio.current_time():
            return True
        if await each.delete_objects():
            self._failed.pop(each.name, None)
            return True
        self._note_failed(each.name)
        return False

    def _due(self, each: ManagedLedger) -> list[LedgerInfo]:
        if self._objects.deletion_lag_ms < 0 or not any(info.offload for info in each.ledgers):
            return []
        now_ms, now = self._services.world.clock.wall_ms(), trio.current_time()
        lag_ms = self._objects.deletion_lag_ms
        found = due_to_leave(each.stored_list, driver=self._objects.driver, lag_ms=lag_ms, now_ms=now_ms)
        return [info for info in found if self._failed.get(state_of(info).uid, now) <= now]

    async def _leave(self, each: ManagedLedger, info: LedgerInfo) -> None:
        """Raises ManagedLedgerError."""
        state = state_of(info)
        await self._objects.verify(ObjectPlace.of(each.name, info, state))
        await each.update_list(lambda value: left(value, info.ledger_id, state.uid))
        self._failed.pop(state.uid, None)
        topic_log(log, each.name).info("offloaded ledger leaves its bookies", ledger=info.ledger_id)
        each.forget_readers([info.ledger_id])
        await each.delete_ledgers([info.ledger_id])

    def _note_failed(self, what: str) -> None:
        if len(self._failed) >= FAILED_MAX:
            self._failed.clear()
        self._failed[what] = trio.current_time() + RETRY_S
