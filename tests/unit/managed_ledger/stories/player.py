"""Stories of one log as text, in testdata/*.txt: brokers that own it in turns, over the ledgers of `fake_ledgers`.

    owner retention_minutes=5 ; publish 0..2 ; sleep 240
    see ledgers=0 state=IDLE

`owner` begins a broker with these options and opens the log; the broker before it is ended in order, unless it was
killed. `at=b` names another broker than `a`. Entries are numbers, which are their payloads too. `see` compares facts:
those of ledgers and the stored list (`_of_ledgers`), of a log (`state`, `b/state`), a cursor (`sub.mark`) and what an
append got back (`s.to`). The other verbs are the methods of `LogPlayer`; a refusal's answer is the name of its error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import trio

from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.log_cursors import Initial
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from managed_ledger.trimming import Retention
from quire.ledger import errors as ledger_errors
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata import errors as metadata_errors
from quire.world.doors import Buffer
from tests.support.datadriven import Line
from tests.support.stories.text import Stage
from tests.unit.managed_ledger.cluster import NAME, Cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import FakeWriter, Sink

INITIAL: dict[str, Initial] = {
    "earliest": "earliest",
    "latest": "latest",
    "at-earliest": EARLIEST,
    "at-latest": LATEST,
}


def error(name: str) -> Exception:
    """Return an error of ledgers or metadata."""
    found: Exception = (getattr(ledger_errors, name, None) or getattr(metadata_errors, name))(f"told to fail: {name}")
    return found


def place(text: str) -> Position:
    """Return a position that is written `ledger:entry`."""
    ledger, _, entry = text.partition(":")
    return Position(int(ledger), int(entry))


def runs(numbers: Iterable[int]) -> str:
    """Return numbers with their runs written `first..last`."""
    grouped = [list(each) for _, each in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    spans = [(each[0][1], each[-1][1]) for each in grouped]
    return ",".join(str(first) if first == last else f"{first}..{last}" for first, last in spans) or "none"


def shown(payloads: Iterable[Buffer]) -> str:
    return runs(int(bytes(each)) for each in payloads)


def names(errors: Sequence[Exception]) -> str:
    """Return the errors of an append, those of other rooms as foreign ones."""
    return ",".join(f"{'' if isinstance(e, ManagedLedgerError) else 'foreign-'}{type(e).__name__}" for e in errors)


class LogPlayer(Stage):
    """Plays the steps of one story."""

    refusals = (ManagedLedgerError, CursorError)

    def __init__(self, cluster: Cluster, expect_error: Callable[[str], None]) -> None:
        super().__init__()
        self.cluster = cluster
        self.expect_error = expect_error
        self.factories: dict[str, ManagedLedgerFactory] = {}
        self.logs: dict[str, ManagedLedger] = {}
        self.ends: dict[str, tuple[trio.Event, trio.Event]] = {}
        self.sinks: dict[str, Sink] = {}
        self.readers: dict[str, Cursor] = {}
        self.told = 0
        """Owners that were told that they are none."""
        self.no_room = ""
        self.kept = b""

    def verb(self, name: str) -> Callable[[Line], object] | None:
        return partial(SHORT[name], self) if name in SHORT else super().verb(name)

    # Brokers

    async def step_broker(self, line: Line) -> None:
        at = line.option("at", "a")
        await self._let_go(at)
        config: dict[str, Any] = {name: int(line.option(name)) for name in list(line.options)}
        assert self._holders is not None
        await self._holders.start(self._broker, at, config)

    async def _broker(self, at: str, config: dict[str, Any], task_status: trio.TaskStatus[None]) -> None:
        stop, gone = self.ends[at] = trio.Event(), trio.Event()
        async with self.cluster.broker(no_room=lambda: self.no_room, **config) as self.factories[at]:
            task_status.started()
            await stop.wait()
        gone.set()

    async def _let_go(self, at: str) -> None:
        if at in self.ends:
            stop, gone = self.ends.pop(at)
            stop.set()
            await gone.wait()

    async def step_open(self, line: Line) -> None:
        at = line.option("at", "a")
        log = self.logs[at] = await self.factories[at].open(NAME, create=line.option("create", "yes") == "yes")
        log.on_fenced = self._count

    def _count(self) -> None:
        self.told += 1

    async def step_owner(self, line: Line) -> None:
        at = line.options.get("at", "a")
        await self.step_broker(line)
        await self.step_open(Line.of(line.where, f"open at={at}"))

    async def step_kill(self, line: Line) -> None:
        kill(self.factories["a"])
        await self._let_go("a")

    async def finish(self) -> None:
        for at in list(self.ends):
            await self._let_go(at)

    # One log

    def log(self, line: Line) -> ManagedLedger:
        return self.logs[line.option("at", "a")]

    async def step_append(self, line: Line) -> None:
        """Append entries in one run, or runs of `by` entries; a name keeps what becomes of them."""
        sink = self.sinks.setdefault(line.word(), Sink())
        first, last = line.span()
        by = line.option_number("by", last - first + 1)
        log = self.log(line)
        for start in range(first, last + 1, by):
            log.append(numbered(start, by), sink)

    async def step_publish(self, line: Line) -> None:
        """Append entries and wait until all are confirmed, at the places `to`."""
        first, last = line.span()
        to = line.option("to", "")
        found = _to(await publish(self.log(line), *numbered(first, last - first + 1)))
        assert found == (to or found), found

    async def step_publish_bytes(self, line: Line) -> None:
        await publish(self.log(line), bytes(line.number()))

    async def step_read(self, line: Line) -> str:
        run = await self.log(line).read(place(line.word()), 100, 1 << 20)
        return f"{shown(run.payloads)} at {run.ledger_id}:{run.first_entry_id}" if run.payloads else "nothing"

    async def step_retain(self, line: Line) -> None:
        """Retain nothing that is consumed, or `everything`."""
        limit = -1 if line.word() == "everything" else 0
        self.log(line).retention = Retention(time_ms=limit, size=limit)

    # Cursors

    async def step_cursor(self, line: Line) -> None:
        """Open a cursor at a place; one that is there is the same again."""
        name, where, log = line.word(), line.word(), self.log(line)
        before = log.cursors.get(name)
        found = await log.open_cursor(name, initial=INITIAL[where] if where in INITIAL else place(where))
        assert before in (None, found)

    async def step_reader(self, line: Line) -> None:
        self.readers[line.word()] = self.log(line).new_reader_cursor(EARLIEST)

    def cursor(self, line: Line) -> Cursor:
        return self.logs["a"].cursors[line.word()]

    async def step_ack(self, line: Line) -> None:
        """Acknowledge entries of a ledger, or none."""
        cursor = self.cursor(line)
        ledger, _, span = line.word().partition(":") if line.words else ("0", "", "")
        first, _, last = span.partition("..")
        cursor.ack_individual(
            [Position(int(ledger), n) for n in range(int(first), int(last or first) + 1)] if span else []
        )

    async def step_ack_to(self, line: Line) -> None:
        self.cursor(line).ack_cumulative(place(line.word()))

    # The ledgers below, and the metadata

    def writer(self) -> FakeWriter:
        """Return the writer of the open ledger."""
        return self.cluster.ledgers.writers[self.logs["a"].ledgers[-1].ledger_id]

    async def step_hold(self, line: Line) -> None:
        self.writer().held = True

    async def step_break(self, line: Line) -> None:
        failure = error(line.word())
        assert isinstance(failure, ledger_errors.LedgerError)
        self.writer().fail(failure)

    async def step_refuse(self, line: Line) -> None:
        """Fail the next appends of a writer that stays usable; with `nothing` no more."""
        name = line.word()
        failure = None if name == "nothing" else error(name)
        assert failure is None or isinstance(failure, ledger_errors.LedgerError)
        self.writer().refusal = failure

    async def step_fail(self, line: Line) -> None:
        """Fail calls of a step of ledgers."""
        step = line.word()
        self.cluster.ledgers.failures[step] = [error(line.word())] * line.option_number("times", 1)

    async def step_delay(self, line: Line) -> None:
        self.cluster.ledgers.delay_s = float(line.word())

    async def step_bookies(self, line: Line) -> None:
        self.cluster.ledgers.full = line.word() == "full"

    async def step_disk(self, line: Line) -> None:
        self.no_room = "the disk is full" if line.word() == "full" else ""

    async def step_cut(self, line: Line) -> None:
        """Let a ledger be closed at an entry by mistake."""
        stored = self.cluster.ledgers.stored[line.number()]
        stored.fenced, stored.last_entry_id = True, line.number()

    async def step_unfence(self, line: Line) -> None:
        """Let the bookies lose a fence."""
        stored = self.cluster.ledgers.stored[line.number()]
        stored.fenced, stored.last_entry_id = False, None

    async def step_next_id(self, line: Line) -> None:
        self.cluster.ledgers._next_id = line.number()

    async def step_metadata(self, line: Line) -> None:
        """Take the metadata `away` from the first broker, or bring them `back`."""
        session = self.cluster.stores[0]
        session.disconnect() if line.word() == "away" else session.reconnect()

    async def step_keep(self, line: Line) -> None:
        """Note the stored list, for `unchanged`."""
        self.kept = await self._list()

    async def _list(self) -> bytes:
        node = await self.cluster.metadata.get(log_path(NAME))
        return node.value if node else b""

    # Facts

    async def step_sleep(self, line: Line) -> None:
        await trio.sleep(float(line.word()))

    async def step_expects(self, line: Line) -> None:
        self.expect_error(" ".join(line.words))
        line.words.clear()

    async def step_says(self, line: Line) -> None:
        """Compare words with the last error of an append."""
        found = str(self.sinks[line.word()].errors[-1])
        assert " ".join(line.words) in found, found
        line.words.clear()

    async def step_at_most(self, line: Line) -> None:
        found, bound = int(await self._fact(line.word())), line.number()
        assert found <= bound, found

    async def step_lacks(self, line: Line) -> None:
        number = line.number()
        assert number not in self.cluster.ledgers.listed()

    async def step_see(self, line: Line) -> None:
        differ = await self._differ(line)
        assert not differ, differ

    async def is_see(self, line: Line) -> bool:
        return not await self._differ(line)

    async def _differ(self, line: Line) -> str:
        found = [(name, line.option(name), await self._fact(name)) for name in list(line.options)]
        return ", ".join(f"{name}={fact}" for name, wanted, fact in found if wanted != fact)

    async def _fact(self, name: str) -> str:
        at, _, rest = name.rpartition("/")
        owner, _, what = rest.rpartition(".")
        if owner in self.sinks:
            sink = self.sinks[owner]
            return {"count": str(sink.count), "to": _to(sink.ids()), "errors": names(sink.errors) or "none"}[what]
        log = self.logs[at or "a"] if self.logs else None
        if owner:
            assert log is not None
            return self._of_cursor(self.readers.get(owner) or log.cursors[owner], what)
        found = await self._of_ledgers(what)
        return found if found is not None else await self._of_log(log, what) if log else "none"

    def _of_cursor(self, cursor: Cursor, what: str) -> str:
        return {
            "mark": lambda: _at(cursor.mark_delete),
            "next": lambda: _at(cursor.read_position),
            "backlog": lambda: str(cursor.backlog()),
        }[what]()

    async def _of_ledgers(self, what: str) -> str | None:
        ledgers = self.cluster.ledgers
        if what in ("lists", "sizes", "named", "deleting", "terminated", "opening", "dated", "leaked"):
            value = await self.cluster.stored_list()
            named = {info.ledger_id for info in value.ledgers}
            return {
                "lists": ",".join(f"{info.ledger_id}*{info.entries}" for info in value.ledgers),
                "sizes": ",".join(str(info.size) for info in value.ledgers),
                "named": runs(sorted(named)),
                "deleting": runs(value.deleting),
                "terminated": _at(value.terminated) if value.terminated else "none",
                "opening": str(value.opening),
                "dated": "yes" if all(info.closed_ms for info in value.ledgers) else "no",
                "leaked": runs(sorted(named ^ ledgers.listed())),
            }[what]
        if what == "unchanged":
            return "yes" if await self._list() == self.kept else "no"
        if what == "listed":
            return "yes" if await self._list() else "no"
        return {
            "ledgers": lambda: runs(sorted(ledgers.listed())),
            "ends": lambda: ",".join(str(ledgers.stored[n].last_entry_id) for n in sorted(ledgers.stored)),
            "calls": lambda: ",".join(ledgers.log).replace(" ", "-"),
            "made": lambda: str(ledgers._next_id),
            "writers": lambda: str(len(ledgers.writers)),
            "multis": lambda: str(len(ledgers.multis)),
            "told": lambda: str(self.told),
            "places": lambda: str(len({pair for sink in self.sinks.values() for pair in sink.ids()})),
        }.get(what, lambda: None)()

    async def _of_log(self, log: ManagedLedger, what: str) -> str:
        if what == "read":
            return shown(await read_all(log))
        return {
            "state": lambda: log.state.name,
            "last": lambda: _at(log.last_confirmed),
            "first": lambda: _at(log.first_position()),
            "count": lambda: str(log.entry_count),
            "own": lambda: ",".join(f"{one.ledger_id}*{one.entries}" for one in log.ledgers),
            "pending": lambda: str(log.pending_bytes),
            "cursors": lambda: ",".join(log.cursors) or "none",
            "cached": lambda: "yes" if self.factories["a"].budget.used else "no",
            "known": lambda: "yes" if NAME in self.factories["a"].managed_ledgers else "no",
            "rolls": lambda: str(sum("next ledger" in each.name for each in log._services.nursery.child_tasks)),
        }[what]()


def _at(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _to(ids: Sequence[tuple[int, int]]) -> str:
    """Return the places of entries, with a run for each ledger."""
    grouped = itertools.groupby(ids, lambda pair: pair[0])
    return ",".join(f"{ledger}:{runs(entry for _, entry in each)}" for ledger, each in grouped) or "none"


SHORT: dict[str, Callable[[LogPlayer, Line], object]] = {
    "close": lambda it, line: it.log(line).close(),
    "closed": lambda it, line: it.log(line).closed.wait(),
    "abandon": lambda it, line: it.log(line).abandon(),
    "terminate": lambda it, line: it.log(line).terminate(),
    "trim": lambda it, line: it.log(line).trim(),
    "truncate": lambda it, line: it.log(line).truncate(),
    "delete": lambda it, line: it.factories["a"].delete(NAME),
    "drop": lambda it, line: it.log(line).delete_cursor(line.word()),
    "skip-all": lambda it, line: it.cursor(line).skip_all(),
    "idle": lambda it, line: it.cursor(line).deactivate(),
    "persisted": lambda it, line: it.cursor(line).wait_persisted(),
    "confirm": lambda it, line: it.writer().confirm(line.number()),
    "mend": lambda it, line: it.cluster.ledgers.failures.clear(),
    "lose": lambda it, line: it.cluster.ledgers.delete(line.number()),
    "store": lambda it, line: it.writer().store(line.number()),
    "taken": lambda it, line: it.cluster.ledgers.close_by_others(
        line.number()
    ),  # by another process, as auto recovery does
    "end": lambda it, line: it._let_go("a"),
}
"""Verbs of one call. `store` brings entries to the bookies, confirmed or not; `taken` closes a ledger as others do."""
