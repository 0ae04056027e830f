"""Bugs to plant in the reading, leaving and trimming of offloaded ledgers; see bugs.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from managed_ledger import factory, trimmer
from managed_ledger.leaving import Leaving
from managed_ledger.ledger_list import LedgerInfo, LedgerList
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import left, state_of
from managed_ledger.tiers import ClosedLedgers, ObjectPlace
from managed_ledger.trimmer import Trimmer
from managed_ledger.trimming import Retention
from simulation.common.patching import Patch


def _object_unverified() -> list[Patch]:
    """A ledger leaves its bookies without a look at its object."""

    async def leave(self: Leaving, each: ManagedLedger, info: LedgerInfo) -> None:
        await each.update_list(lambda value: left(value, info.ledger_id, state_of(info).uid))
        each.forget_readers([info.ledger_id])
        await each.delete_ledgers([info.ledger_id])

    return [(Leaving, "_leave", leave)]


def _object_forgotten() -> list[Patch]:
    """A ledger leaves the list, and its object is named nowhere."""

    def forgetful(value: LedgerList, ledger_ids: Collection[int], *, driver: str) -> LedgerList:
        return value.without(ledger_ids)

    return [(trimmer, "trimmed", forgetful), (factory, "trimmed", forgetful)]


def _object_deleted_first() -> list[Patch]:
    """A trim deletes objects before the list is stored without their ledgers."""
    trim: Callable[[Trimmer, Retention | None], Awaitable[int]] = Trimmer.trim

    async def hasty(self: Trimmer, retention: Retention | None = None) -> int:
        objects, name = self._services.objects, self._stored.name
        useless = self.useless(retention)
        if objects is not None:
            for info in self._stored.value.ledgers:
                if info.ledger_id in useless and info.offload:
                    await objects.delete([ObjectPlace.of(name, info, state_of(info))])
        return await trim(self, retention)

    return [(Trimmer, "trim", hasty)]


def _second_source_ignored() -> list[Patch]:
    """A ledger is read from its first source only."""
    sources: Callable[[ClosedLedgers, int], list[str]] = ClosedLedgers.sources

    def first(self: ClosedLedgers, ledger_id: int) -> list[str]:
        return sources(self, ledger_id)[:1]

    return [(ClosedLedgers, "sources", first)]


BUGS_OF_OFFLOAD: dict[str, Callable[[], list[Patch]]] = {
    "object-unverified": _object_unverified,
    "object-forgotten": _object_forgotten,
    "object-deleted-first": _object_deleted_first,
    "second-source-ignored": _second_source_ignored,
}
"""Bugs by name; the docstring describes each."""
