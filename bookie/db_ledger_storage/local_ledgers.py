"""Ledgers that a storage has any data of, in ranges of ascending ids, so that a million of them take no memory.

Known ledgers have rows in the ledger index. A crash may leave strays, ledgers with rows in the location index alone: a
journal may have entries of a ledger that was deleted before the crash. The original leaves them too. Our running bookie
does not.

To search them takes a seek for each ledger. So each round of garbage collection searches a part of the location index,
until all of it is searched. In the meantime the location index itself is asked about each ledger that is not known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

import trio

from bookie.db_ledger_storage.location_index import ENTRY_ID_MAX
from bookie.db_ledger_storage.parts import BETWEEN_STEPS_S, StorageParts

_ROWS_PER_STEP: Final = 1000
"""Rows of the ledger index read in one step; about half a millisecond."""
_SEEKS_PER_STEP: Final = 100
"""Ledgers of the location index found in one step; one to two milliseconds."""
SEEKS_PER_ROUND = 5_000
"""Ledgers searched in one round; about 0.2 seconds, with the pauses..."""
ROUNDS_OF_SEARCH: Final = 16
"""...or this part of the known ones, if that is more."""
STRAYS_MAX = 100_000
"""Strays kept in memory. If there are more, the search continues without end, and each round has its part of them."""
_ROWLESS_MAX: Final = 1 << 16
"""Ledgers noted as without rows while the search runs."""


class LocalLedgers:
    """Ledgers of one open storage."""

    def __init__(self, parts: StorageParts) -> None:
        self._parts = parts
        self._offload = parts.world.offload
        self._strays: dict[int, None] = {}
        """Strays found."""
        self._searched = 0
        """Ledgers below it are searched."""
        self._has_many_strays = False
        """Not all strays are in memory, whatever is searched."""
        self._searching = trio.Lock()
        self._rowless: set[int] = set()
        """Unknown ledgers that the location index has no rows of. No rows are written of a ledger that is unknown."""
        self.asked = 0

    def forgotten(self, ledger_id: int) -> None:
        """The ledger's rows are about to be deleted."""
        self._strays.pop(ledger_id, None)

    def lives(self, ledger_id: int) -> bool:
        """Return whether the ledger may have rows in the index. Blocking; any worker may call this.

        A ledger is noted as one whose rows are left before it is forgotten, and a stray is noted before it counts as
        searched. So the order of the questions matters.
        """
        parts = self._parts
        is_searched = ledger_id < self._searched and not self._has_many_strays
        if ledger_id in parts.ledgers or ledger_id in self._strays or parts.removal.has_rows(ledger_id):
            return True
        if is_searched or ledger_id in self._rowless:
            return False
        self.asked += 1
        if parts.locations.has_rows(ledger_id):
            return True
        if len(self._rowless) < _ROWLESS_MAX:
            self._rowless.add(ledger_id)
        return False

    async def _search(self) -> None:
        """Search the next part of the location index for strays."""
        async with self._searching:
            if self._has_many_strays:
                self._strays = {}  # the last round had these
                if self._searched > ENTRY_ID_MAX:
                    self._searched = 0
            left = max(SEEKS_PER_ROUND, len(self._parts.ledgers) // ROUNDS_OF_SEARCH)
            while left > 0 and self._searched <= ENTRY_ID_MAX:
                strays, following = await self._seek(self._searched, min(left, _SEEKS_PER_STEP))
                self._strays.update(dict.fromkeys(strays))
                if len(self._strays) > STRAYS_MAX:
                    self._has_many_strays = True
                    left = 0
                self._searched = following
                left -= _SEEKS_PER_STEP
                await trio.sleep(BETWEEN_STEPS_S)
            if self._searched > ENTRY_ID_MAX and not self._has_many_strays:
                self._rowless.clear()

    async def _seek(self, first: int, count_max: int) -> tuple[list[int], int]:
        """Return the strays among the lowest `count_max` ledgers from `first` on, and the id to continue with."""
        parts = self._parts
        look = partial(parts.locations.ledgers_from, first, count_max)
        found = await self._offload.run(look, name="ledgers of the index")
        following = found[-1] + 1 if len(found) == count_max else ENTRY_ID_MAX + 1
        return [each for each in found if each not in parts.ledgers and not parts.removal.has_rows(each)], following

    async def ranges(self) -> AsyncGenerator[list[int], None]:
        """Yield the ids of all ledgers with any data, some at a time, all ascending. Close it if not all are wanted.

        Ledgers made in the meantime may be included or not, and so may strays that are not found yet.
        """
        parts = self._parts
        await self._search()
        rest = sorted({*parts.ledgers.unwritten(), *parts.cache.ledgers(), *self._strays})
        first = 0
        while first <= ENTRY_ID_MAX:
            look = partial(parts.ledgers.ids_from, first, _ROWS_PER_STEP)
            ids = await self._offload.run(look, name="ledgers of the ledger index")
            last = ids[-1] if len(ids) == _ROWS_PER_STEP else ENTRY_ID_MAX
            at = bisect_right(rest, last)
            yield sorted({*[each for each in ids if each in parts.ledgers], *rest[:at]})
            del rest[:at]
            first = last + 1
            await trio.sleep(BETWEEN_STEPS_S)
