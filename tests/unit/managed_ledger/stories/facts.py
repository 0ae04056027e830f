"""Verbs that stories of logs and of cursors share: the harm to their ledgers, and `see`, which compares facts."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import trio

from quire.ledger import errors as ledger_errors
from quire.ledger.position import Position
from quire.metadata import errors as metadata_errors
from quire.metadata.local.memory import MemoryStore
from tests.support.datadriven import Line
from tests.support.stories.text import Stage
from tests.unit.managed_ledger.fake_ledgers import FakeLedgers, FakeWriter


def runs(numbers: Iterable[int]) -> str:
    """Return numbers with their runs written `first..last`."""
    grouped = [list(each) for _, each in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    spans = [(each[0][1], each[-1][1]) for each in grouped]
    return ",".join(str(first) if first == last else f"{first}..{last}" for first, last in spans) or "none"


def at(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def ledger_error(name: str) -> ledger_errors.LedgerError:
    found: ledger_errors.LedgerError = getattr(ledger_errors, name)(f"told to fail: {name}")
    return found


class FactStage(Stage):
    """Base of the players of such stories."""

    short: ClassVar[dict[str, Callable[[Any, Line], object]]]
    """Verbs of one call."""

    def __init__(self, ledgers: FakeLedgers) -> None:
        super().__init__()
        self.ledgers = ledgers

    def verb(self, name: str) -> Callable[[Line], object] | None:
        return partial(self.short[name], self) if name in self.short else super().verb(name)

    @abstractmethod
    def writer(self) -> FakeWriter:
        """Return the writer of the open ledger."""

    @abstractmethod
    def store(self, line: Line) -> MemoryStore:
        """Return a session of the metadata, as the line names it."""

    @abstractmethod
    async def fact(self, name: str) -> object: ...

    async def step_sleep(self, line: Line) -> None:
        await trio.sleep(float(line.word()))

    def step_hold(self, line: Line) -> None:
        """Hold the appends to the open ledger; with `next` those to all that come."""
        if line.words:
            self.ledgers.hold = line.word() == "next"
        else:
            self.writer().held = True

    def step_confirm(self, line: Line) -> None:
        self.writer().confirm(line.number() if line.words else None)

    def step_break(self, line: Line) -> None:
        self.writer().fail(ledger_error(line.word()))

    def step_fail(self, line: Line) -> None:
        """Fail calls of a step of ledgers."""
        step, name = line.word(), line.word()
        made = ledger_error(name) if hasattr(ledger_errors, name) else getattr(metadata_errors, name)(name)
        self.ledgers.failures[step] = [made] * line.option_number("times", 1)

    def step_mend(self, line: Line) -> None:
        self.ledgers.failures.clear()

    def step_taken(self, line: Line) -> None:
        """Let another process close a ledger, as auto recovery does."""
        self.ledgers.close_by_others(line.number())

    async def step_lose(self, line: Line) -> None:
        await self.ledgers.delete(line.number())

    def step_metadata(self, line: Line) -> None:
        """Take the metadata `away`, or bring them `back`."""
        away, store = line.word() == "away", self.store(line)
        store.disconnect() if away else store.reconnect()

    async def step_see(self, line: Line) -> None:
        differ = await self._differ(line)
        assert not differ, differ

    async def is_see(self, line: Line) -> bool:
        return not await self._differ(line)

    async def _differ(self, line: Line) -> str:
        found = [(name, line.option(name), str(await self.fact(name))) for name in list(line.options)]
        return ", ".join(f"{name}={fact}" for name, wanted, fact in found if wanted != fact)
