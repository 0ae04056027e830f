"""Stories of one log as text, in testdata/*.txt: brokers that own it in turns, over the ledgers of `fake_ledgers`.

    owner retention_minutes=5 ; publish 0..2 ; sleep 240
    see ledgers=0 state=IDLE

`owner` begins a broker with these options and opens the log; the broker before it is ended in order, unless it was
killed. `at=b` names another broker than `a`. Entries are numbers, which are their payloads too. `see` compares facts:
of ledgers and the stored list (`OF_LEDGERS`, `OF_THE_LIST`), of a log (`state`, `b/state`), of a cursor (`sub.mark`)
and of an append (`s.to`). The other verbs are the methods of `LogPlayer`; a refusal's answer is the name of its error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

from cursors.cursor import Cursor
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.ledger_list import LedgerList
from managed_ledger.log_cursors import Initial
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from managed_ledger.trimming import Retention
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata.local.memory import MemoryStore
from quire.world.doors import Buffer
from tests.support.datadriven import Line
from tests.unit.managed_ledger.cluster import NAME, Cluster, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import FakeWriter, Sink
from tests.unit.managed_ledger.stories.facts import FactStage, at, ledger_error, runs

INITIAL: dict[str, Initial] = {
    "earliest": "earliest",
    "latest": "latest",
    "at-earliest": EARLIEST,
    "at-latest": LATEST,
}


def place(text: str) -> Position:
    """Return a position that is written `ledger:entry`."""
    ledger, _, entry = text.partition(":")
    return Position(int(ledger), int(entry))


def shown(payloads: Iterable[Buffer]) -> str:
    return runs(int(bytes(each)) for each in payloads)


def names(errors: Sequence[Exception]) -> str:
    """Return the errors of an append, those of other rooms as foreign ones."""
    found = (f"{'' if isinstance(e, ManagedLedgerError) else 'foreign-'}{type(e).__name__}" for e in errors)
    return ",".join(found) or "none"


class LogPlayer(FactStage):
    """Plays the steps of one story."""

    refusals = (ManagedLedgerError, CursorError)

    def __init__(self, cluster: Cluster, expect_error: Callable[[str], None]) -> None:
        super().__init__(cluster.ledgers)
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

    # Brokers

    async def step_broker(self, line: Line) -> None:
        name = line.option("at", "a")
        await self._let_go(name)
        config: dict[str, Any] = {key: int(line.option(key)) for key in list(line.options)}
        assert self._holders is not None
        await self._holders.start(self._broker, name, config)

    async def _broker(self, name: str, config: dict[str, Any], task_status: trio.TaskStatus[None]) -> None:
        stop, gone = self.ends[name] = trio.Event(), trio.Event()
        async with self.cluster.broker(no_room=lambda: self.no_room, **config) as self.factories[name]:
            task_status.started()
            await stop.wait()
        gone.set()

    async def _let_go(self, name: str) -> None:
        if name in self.ends:
            stop, gone = self.ends.pop(name)
            stop.set()
            await gone.wait()

    async def step_open(self, line: Line) -> None:
        name = line.option("at", "a")
        log = self.logs[name] = await self.factories[name].open(NAME, create=line.option("create", "yes") == "yes")
        log.on_fenced = self._count

    def _count(self) -> None:
        self.told += 1

    async def step_owner(self, line: Line) -> None:
        opened = Line.of(line.where, f"open at={line.options.get('at', 'a')}")
        await self.step_broker(line)
        await self.step_open(opened)

    async def step_kill(self, line: Line) -> None:
        """End the broker as by SIGKILL, with its exit as the next thing that happens."""
        self.ends["a"][0].set()
        kill(self.factories["a"])
        await self._let_go("a")

    async def finish(self) -> None:
        for name in list(self.ends):
            await self._let_go(name)

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
        return self.ledgers.writers[self.logs["a"].ledgers[-1].ledger_id]

    async def step_refuse(self, line: Line) -> None:
        """Fail the next appends of a writer that stays usable; with `nothing` no more."""
        name = line.word()
        self.writer().refusal = None if name == "nothing" else ledger_error(name)

    def step_set(self, line: Line) -> None:
        """Set the `delay` of ledgers, whether bookies are `full`, the next id, and whether the disk has no room."""
        self.ledgers.delay_s = float(line.option("delay", str(self.ledgers.delay_s)))
        self.ledgers.full = line.option("bookies", "full" if self.ledgers.full else "free") == "full"
        self.ledgers._next_id = line.option_number("next-id", self.ledgers._next_id)
        self.no_room = {"full": "the disk is full", "free": ""}[line.option("disk", "full" if self.no_room else "free")]

    def store(self, line: Line) -> MemoryStore:
        return self.cluster.stores[0]

    async def step_cut(self, line: Line) -> None:
        """Let a ledger be closed at an entry by mistake."""
        stored = self.ledgers.stored[line.number()]
        stored.fenced, stored.last_entry_id = True, line.number()

    async def step_unfence(self, line: Line) -> None:
        """Let the bookies lose a fence."""
        stored = self.ledgers.stored[line.number()]
        stored.fenced, stored.last_entry_id = False, None

    async def step_keep(self, line: Line) -> None:
        """Note the stored list, for `unchanged`."""
        self.kept = await self._list()

    async def _list(self) -> bytes:
        node = await self.cluster.metadata.get(log_path(NAME))
        return node.value if node else b""

    # Facts

    async def step_expects(self, line: Line) -> None:
        self.expect_error(" ".join(line.words))
        line.words.clear()

    async def step_says(self, line: Line) -> None:
        """Compare words with the last error of an append."""
        found = str(self.sinks[line.word()].errors[-1])
        assert " ".join(line.words) in found, found
        line.words.clear()

    async def step_at_most(self, line: Line) -> None:
        found, bound = int(str(await self.fact(line.word()))), line.number()
        assert found <= bound, found

    async def step_lacks(self, line: Line) -> None:
        number = line.number()
        assert number not in self.ledgers.listed()

    async def fact(self, name: str) -> object:
        broker, _, rest = name.rpartition("/")
        owner, _, what = rest.rpartition(".")
        if owner in self.sinks:
            sink = self.sinks[owner]
            return {"count": sink.count, "to": _to(sink.ids()), "errors": names(sink.errors)}[what]
        if owner:
            cursor = self.readers.get(owner) or self.logs["a"].cursors[owner]
            places = {"mark": cursor.mark_delete, "next": cursor.read_position}
            return at(places[what]) if what in places else cursor.backlog()
        if what in OF_THE_LIST:
            value = await self.cluster.stored_list()
            return OF_THE_LIST[what](value)
        if what == "leaked":
            return runs(sorted(await self.cluster.named_ledgers() ^ self.ledgers.listed()))
        if what in ("unchanged", "listed"):
            found = await self._list()
            return "yes" if (found == self.kept if what == "unchanged" else found) else "no"
        if what == "read":
            return shown(await read_all(self.logs[broker or "a"]))
        return OF_LEDGERS[what](self) if what in OF_LEDGERS else self.of_log(self.logs[broker or "a"], what)

    def of_log(self, log: ManagedLedger, what: str) -> object:
        factory = self.factories["a"]
        facts: dict[str, Callable[[], object]] = {
            "state": lambda: log.state.name,
            "last": lambda: at(log.last_confirmed),
            "count": lambda: log.entry_count,
            "own": lambda: ",".join(f"{one.ledger_id}*{one.entries}" for one in log.ledgers),
            "pending": lambda: log.pending_bytes,
            "cursors": lambda: ",".join(log.cursors) or "none",
            "cached": lambda: "yes" if factory.budget.used else "no",
            "known": lambda: "yes" if NAME in factory.managed_ledgers else "no",
            "rolls": lambda: sum("next ledger" in each.name for each in log._services.nursery.child_tasks),
        }
        return facts[what]()


def _to(ids: Sequence[tuple[int, int]]) -> str:
    """Return the places of entries, with a run for each ledger."""
    grouped = itertools.groupby(ids, lambda pair: pair[0])
    return ",".join(f"{ledger}:{runs(entry for _, entry in each)}" for ledger, each in grouped) or "none"


OF_THE_LIST: dict[str, Callable[[LedgerList], object]] = {
    "lists": lambda value: ",".join(f"{info.ledger_id}*{info.entries}" for info in value.ledgers),
    "sizes": lambda value: ",".join(str(info.size) for info in value.ledgers),
    "named": lambda value: runs(sorted(info.ledger_id for info in value.ledgers)),
    "deleting": lambda value: runs(value.deleting),
    "terminated": lambda value: at(value.terminated) if value.terminated else "none",
    "opening": lambda value: value.opening,
    "dated": lambda value: "yes" if all(info.closed_ms for info in value.ledgers) else "no",
}
OF_LEDGERS: dict[str, Callable[[LogPlayer], object]] = {
    "ledgers": lambda it: runs(sorted(it.ledgers.listed())),
    "ends": lambda it: ",".join(str(stored.last_entry_id) for _, stored in sorted(it.ledgers.stored.items())),
    "calls": lambda it: ",".join(it.ledgers.log).replace(" ", "-"),
    "made": lambda it: it.ledgers._next_id,
    "writers": lambda it: len(it.ledgers.writers),
    "multis": lambda it: len(it.ledgers.multis),
    "told": lambda it: it.told,
    "places": lambda it: len({pair for sink in it.sinks.values() for pair in sink.ids()}),
}
LogPlayer.short = {
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
    "store": lambda it, line: it.writer().store(line.number()),  # at the bookies, confirmed or not
    "end": lambda it, line: it._let_go("a"),
}
