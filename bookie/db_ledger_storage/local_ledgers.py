"""Ledgers that a storage has any data of, in ranges of ascending ids, so that a million of them take no memory.

Known ledgers have rows in the ledger index. A crash may leave strays, ledgers with rows in the location index alone,
and so may the original; our running bookie does not. They are searched once, with one seek a ledger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from typing import Final

import trio

from bookie.db_ledger_storage.location_index import ENTRY_ID_MAX
from bookie.db_ledger_storage.parts import BETWEEN_STEPS_S, StorageParts

_ROWS_PER_STEP: Final = 1000
"""Rows of the ledger index read in one step; about half a millisecond."""
_SEEKS_PER_STEP: Final = 100
STRAYS_MAX: Final = 100_000
"""Strays kept in memory; if there are more, they are searched anew in each round."""


class LocalLedgers:
    """Ledgers of one open storage."""

    def __init__(self, parts: StorageParts) -> None:
        self._parts = parts
        self._offload = parts.world.offload
        self._strays: dict[int, None] | None = None
        """Strays as of the search; None before it. Ascending."""
        self._has_many_strays = False

    def forgotten(self, ledger_id: int) -> None:
        """The ledger's rows are about to be deleted."""
        if self._strays:
            self._strays.pop(ledger_id, None)

    def lives(self, ledger_id: int) -> bool:
        """Return whether the ledger may have rows in the index. Blocking; any worker may call this.

        A ledger is noted as one whose rows are left before it is forgotten, so it is always in one of these.
        """
        parts = self._parts
        return (
            ledger_id in parts.ledgers
            or parts.removal.has_rows(ledger_id)
            or ledger_id in (self._strays or ())
            or (self._has_many_strays and parts.locations.last_entry_id(ledger_id) >= 0)
        )

    async def find_strays(self) -> None:
        """Search the strays, once."""
        if self._strays is not None:
            return
        strays: dict[int, None] = {}
        first = 0
        while first <= ENTRY_ID_MAX:
            found, first = await self._seek(first)
            strays.update(dict.fromkeys(found))
            if len(strays) > STRAYS_MAX:
                self._has_many_strays = True
                self._strays = {}
                return
            await trio.sleep(BETWEEN_STEPS_S)
        self._strays = strays

    async def _seek(self, first: int) -> tuple[list[int], int]:
        """Return strays from `first` on, and the id to continue with."""
        parts = self._parts
        look = partial(parts.locations.ledgers_from, first, _SEEKS_PER_STEP)
        found = await self._offload.run(look, name="ledgers of the index")
        following = found[-1] + 1 if len(found) == _SEEKS_PER_STEP else ENTRY_ID_MAX + 1
        strays = [each for each in found if each not in parts.ledgers and not parts.removal.has_rows(each)]
        return strays, following

    async def ranges(self) -> AsyncGenerator[list[int], None]:
        """Yield the ids of all ledgers with any data, some at a time, all ascending. Close it if not all are wanted.

        Ledgers made in the meantime may be included or not.
        """
        parts = self._parts
        await self.find_strays()
        rest = sorted({*parts.ledgers.unwritten(), *parts.cache.ledgers(), *(self._strays or ())})
        first = 0
        while first <= ENTRY_ID_MAX:
            look = partial(parts.ledgers.ids_from, first, _ROWS_PER_STEP)
            ids = await self._offload.run(look, name="ledgers of the ledger index")
            last = ids[-1] if len(ids) == _ROWS_PER_STEP else ENTRY_ID_MAX
            more: Iterable[int] = ()
            if self._has_many_strays:
                more, following = await self._seek(first)
                last = min(last, following - 1)
            at = bisect_right(rest, last)
            known = [each for each in ids if each <= last and each in parts.ledgers]
            yield sorted({*known, *rest[:at], *[each for each in more if each <= last]})
            del rest[:at]
            first = last + 1
            await trio.sleep(BETWEEN_STEPS_S)
