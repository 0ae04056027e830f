"""Decommission: removes a stopped bookie from the cluster, once all its data are on other bookies.

    it must not be running; auto recovery must be enabled, with an auditor
    no other bookie may be lost that still should have entries: what it had may have its last copy here
    the auditor is asked to look now; then workers copy
    wait until no ledger should have entries on it, and no mark names it

Used by `quire shell decommissionbookie` and by PUT /api/v1/autorecovery/decommission.
Source: BookKeeperAdmin.decommissionBookie; that no other copies may be missing is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import trio

from autorecovery.auditing.overview import known_bookies, running_bookies, working_auditor
from autorecovery.errors import RemovalRefusedError
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from autorecovery.removal.ledger_scan import has_entries_on, read_each
from quire.metadata import bookies
from quire.metadata.errors import NoNodeError
from quire.metadata.ledgers import LedgerManager, LedgerMetadata
from quire.metadata.store import MetadataStore

POLL_S: Final = 1.0
"""Time between two looks at the remaining ledgers."""
NAMED_MAX: Final = 5

Count = Callable[[int], None]


def _uncounted(count: int) -> None:
    """Ignore the progress."""


class Decommission:
    """Removal of one bookie. `write_id`: the text of a ledger's id."""

    def __init__(
        self,
        store: MetadataStore,
        manager: LedgerManager,
        marks: UnderreplicatedLedgers,
        bookie_id: str,
        *,
        root: str,
        write_id: Callable[[int], str] = str,
    ) -> None:
        self._store = store
        self._manager = manager
        self._marks = marks
        self._bookie_id = bookie_id
        self._root = root
        self._write_id = write_id

    async def check(self, examined: Count = _uncounted) -> list[int]:
        """Return the ledgers that should have entries on it, and call `examined` with the number looked at.

        Raises: RemovalRefusedError if it may not be decommissioned now, MetadataError."""
        running = await running_bookies(self._store, self._root)
        if self._bookie_id in running:
            raise RemovalRefusedError(f"bookie {self._bookie_id} is running: stop it first")
        known = await known_bookies(self._store, self._root)
        await working_auditor(self._store, self._marks, self._root)
        left: list[int] = []
        lost: dict[str, int] = {}

        def look(ledger_id: int, metadata: LedgerMetadata | str | None) -> None:
            if isinstance(metadata, str):
                raise RemovalRefusedError(f"ledger {self._write_id(ledger_id)}: {metadata}")
            if metadata is None:
                return
            members = {each for fragment in metadata.fragments for each in fragment.bookies}
            for each in members.difference(running):
                if not has_entries_on(metadata, each):
                    continue
                if each == self._bookie_id:
                    left.append(ledger_id)
                else:
                    lost[each] = lost.get(each, 0) + 1

        await read_each(self._manager, look, examined)
        if self._bookie_id not in known and not left:
            raise RemovalRefusedError(f"unknown bookie {self._bookie_id}: it has no cookie, and no ledger names it")
        if lost:
            named = ", ".join([f"{each} ({count} ledgers)" for each, count in sorted(lost.items())[:NAMED_MAX]])
            raise RemovalRefusedError(
                f"copies of other bookies are missing, so this one may have the last copy: {named}. "
                "Start them, or wait until auto recovery has copied their ledgers"
            )
        marked = self._marks.list()
        others = [each.ledger_id async for each in marked if any(name != self._bookie_id for name in each.replicas)]
        if others:
            raise RemovalRefusedError(
                f"{len(others)} ledgers are marked as lacking other copies, among them {self._some(others)}: wait "
                "until auto recovery has copied them (quire shell listunderreplicated)"
            )
        return left

    async def wait(self, left: list[int], copied: Count = _uncounted) -> None:
        """Request an audit, and wait until none of the ledgers `left`, and no mark, names the bookie; call `copied`
        with the number of ledgers that do not. Raises RemovalRefusedError if it runs again, MetadataError."""
        await self._marks.audit_now()
        waiting = list(left)
        while True:
            waiting = [each for each in waiting if await self._is_on(each)]
            copied(len(left) - len(waiting))
            if not waiting:
                break
            await trio.sleep(POLL_S)
        while True:
            if not [each.ledger_id async for each in self._marks.list(missing=self._bookie_id)]:
                break
            await trio.sleep(POLL_S)
        if self._bookie_id in await running_bookies(self._store, self._root):
            raise RemovalRefusedError(f"bookie {self._bookie_id} was started meanwhile: its cookie is kept")

    async def _is_on(self, ledger_id: int) -> bool:
        stored = await self._manager.read(ledger_id)
        return stored is not None and has_entries_on(stored.value, self._bookie_id)

    def _some(self, ledger_ids: Iterable[int]) -> str:
        return ", ".join([self._write_id(each) for each in list(ledger_ids)[:NAMED_MAX]])


async def forget_cookie(store: MetadataStore, bookie_id: str, *, root: str) -> bool:
    """Delete the cookie of a removed bookie; return whether there was one."""
    try:
        await bookies.delete_cookie(store, bookie_id, root=root)
    except NoNodeError:
        return False
    return True
