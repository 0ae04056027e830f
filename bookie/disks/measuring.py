"""Measuring: measures several disks at the same time, so that one that fails or hangs holds up none of the others.

A disk that does not answer within WAIT_S keeps its last figures, and is not asked again before it has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import trio

from bookie.disks.directory import LedgerDirectory, space_of
from bookie.disks.usage import Space
from quire.world.doors import World

T = TypeVar("T")
WAIT_S: Final = 1.0
"""Seconds that a round waits for the disks of journals, and then for those of ledger directories."""


class Measuring:
    """Rounds of measurements. `spaces` and `journals` are the last figures."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        directories: Sequence[LedgerDirectory],
        folders: Sequence[str],
        spaces: list[tuple[Space, ...]],
        journals: list[Space],
    ) -> None:
        """`nursery`: measurements that do not end stay there. `folders`: of the journals."""
        self._world = world
        self._nursery = nursery
        self._directories = directories
        self._folders = folders
        self.spaces = spaces
        self.journals = journals
        self._measuring: set[tuple[str, int]] = set()

    async def round(self, usable: Sequence[int], unflushed: int) -> dict[int, OSError]:
        """Measure the journals and the usable directories, and keep these' reserves; return the errors by directory.

        OSError: no journal could be measured. A journal among several that fails is noticed by its next write.
        """
        folders, disk = self._folders, self._world.disk
        numbers = range(len(folders))
        failed = await self._all("journal", numbers, lambda index: space_of(disk, folders[index]), self.journals)
        if len(failed) == len(folders):
            raise failed[0]
        job = partial(_measure, self._directories, list(self.journals), unflushed)
        return await self._all("ledgers", usable, job, self.spaces)

    async def _all(
        self, kind: str, numbers: Sequence[int], job: Callable[[int], T], results: list[T]
    ) -> dict[int, OSError]:
        errors: dict[int, OSError] = {}
        waiting = {number for number in numbers if (kind, number) not in self._measuring}
        ended = trio.Event()

        async def measure(number: int) -> None:
            self._measuring.add((kind, number))
            try:
                results[number] = await self._world.offload.run(partial(job, number), name="disk room")
            except OSError as error:
                errors[number] = error
            finally:
                self._measuring.discard((kind, number))
                waiting.discard(number)
                if not waiting:
                    ended.set()

        for number in sorted(waiting):
            self._nursery.start_soon(measure, number, name=f"disk room {kind} {number}")
        if waiting:
            with trio.move_on_after(WAIT_S):
                await ended.wait()
        return dict(errors)


def _measure(
    directories: Sequence[LedgerDirectory], journals: Sequence[Space], unflushed: int, number: int
) -> tuple[Space, ...]:
    """Measure a directory and keep its reserve. Blocking. OSError."""
    each = directories[number]
    held = each.holds_reserve
    each.keep_reserve(each.fullest(journals), unflushed)
    if held != each.holds_reserve:
        each.fullest(journals)
    return each.spaces()
