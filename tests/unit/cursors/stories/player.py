"""Stories of one cursor as text, in testdata/*.txt, over the ledgers of `fake_ledgers`.

    new ; acked 0 5 ; taken 100 ; acked 1
    see ledgers=101 again.mark=1:1 again.ranges=5

Entries are those of ledger 1 of the log; the cursor's own ledgers begin at 100. `config` comes first and has options of
the cursor. `ack` changes it, `acked` waits until that is durable, and `again` goes on with what another broker finds.
`see` compares facts: of the environment (`_of_bench`), of the cursor (`mark`), and of what another broker finds now
(`again.mark`). The other verbs are the methods of `CursorPlayer`; a refusal's answer is the name of its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from cursors.config import CursorConfig
from cursors.cursor import Cursor
from cursors.errors import CursorError
from cursors.opening import create_cursor, cursor_path, recover_cursor
from cursors.position_info import ENTRY_BYTES_MAX, decode_chain, decode_node
from quire.ledger.errors import LedgerError
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.metadata.store import Put
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.datadriven import Line
from tests.support.nodes import node_at
from tests.support.stories.text import Stage, Story
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, fake_log, in_bench
from tests.unit.managed_ledger.fake_ledgers import FakeWriter
from tests.unit.managed_ledger.stories.player import error, runs

LOG = fake_log((1, 100_000_000))
CONFIG = CursorConfig(ensemble_size=1, write_quorum=1, ack_quorum=1)
SHOWN_MAX = 100
"""Entries that the fact `acked` looks at."""


def places(line: Line) -> list[Position]:
    """Take the rest of the words: entries and spans of them."""
    found: list[Position] = []
    while line.words:
        first, last = line.span()
        found += [Position(1, entry) for entry in range(first, last + 1)]
    return found


def _at(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _size(index: bytes) -> str:
    """Return the size of an index that `index` made, or `wrong`."""
    return str(len(index)) if index == b"i" * len(index) else "wrong"


class CursorPlayer(Stage):
    """Plays the steps of one story."""

    refusals = (CursorError, MetadataError)

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.cursor: Cursor
        self.answers: list[CursorError | None] = []
        self.found: Cursor | None = None

    def verb(self, name: str) -> Callable[[Line], object] | None:
        return partial(SHORT[name], self) if name in SHORT else super().verb(name)

    async def step_new(self, line: Line) -> None:
        services, fenced = self.bench.services, self.bench.on_fenced
        who = [("who", "me")]
        self.cursor = await create_cursor(services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), who, fenced)

    async def recovered(self) -> Cursor:
        return await recover_cursor(self.bench.services, LOG, LOG_PATH, LOG_NAME, "sub", self.bench.on_fenced)

    async def step_again(self, line: Line) -> None:
        self.cursor = await self.recovered()

    async def step_acked(self, line: Line) -> None:
        self.cursor.ack_individual(places(line))
        await self.cursor.wait_persisted()

    async def step_ack_each(self, line: Line) -> None:
        """Acknowledge each entry by itself; with `asked=yes` each is to be answered."""
        asked = line.option("asked", "no") == "yes"
        for each in places(line):
            self.cursor.ack_individual([each])
            if asked:
                self.cursor.persisted(self.answers.append)

    def step_ack_to(self, line: Line) -> None:
        self.cursor.ack_cumulative(Position(1, line.number()))

    def step_batch(self, line: Line) -> None:
        """Leave these bits of an entry's batch."""
        self.cursor.ack_batch(Position(1, line.number()), [int(line.word(), 2)])

    def step_redeliver(self, line: Line) -> None:
        for each in places(line):
            self.cursor.redeliveries.increment(each)
        self.cursor.redelivered()

    async def step_seek(self, line: Line) -> None:
        await self.cursor.seek(Position(1, line.number()))

    def step_index(self, line: Line) -> None:
        """Store an index of delayed messages of so many bytes, or one that no entry has room for."""
        size = line.word()
        self.cursor.store_delayed_index(b"i" * (ENTRY_BYTES_MAX if size == "max" else int(size)))

    async def step_properties(self, line: Line) -> None:
        await self.cursor.set_cursor_properties([(name, line.option(name)) for name in list(line.options)])

    async def step_close(self, line: Line) -> None:
        assert self.cursor.store is not None
        await self.cursor.store.close()

    # The ledgers below, and the metadata

    def writer(self) -> FakeWriter:
        return self.bench.ledgers.writers[max(self.bench.ledgers.writers)]

    def step_hold(self, line: Line) -> None:
        """Hold the appends to the cursor's ledger, or those to all that come."""
        if line.words and line.word() == "next":
            self.bench.ledgers.hold = True
        else:
            self.writer().held = True

    def step_break(self, line: Line) -> None:
        failure = error(line.word())
        assert isinstance(failure, LedgerError)
        self.writer().fail(failure)

    def step_fail(self, line: Line) -> None:
        """Fail calls of a step of ledgers."""
        step = line.word()
        self.bench.ledgers.failures[step] = [error(line.word())] * line.option_number("times", 1)

    def step_metadata(self, line: Line) -> None:
        """Take the metadata of the cursor or of its `ledgers` away, or bring them back."""
        away = line.word() == "away"
        store = self.bench.ledgers.store if line.words and line.word() == "ledgers" else self.bench.metadata
        store.disconnect() if away else store.reconnect()

    async def step_other_changes_node(self, line: Line) -> None:
        path = cursor_path(LOG_PATH, "sub")
        found = await node_at(self.bench.metadata, path)
        await self.bench.metadata.multi([Put(path=path, value=found.value, version=found.version)])

    async def step_owner_changes_list(self, line: Line) -> None:
        found = await node_at(self.bench.metadata, LOG_PATH)
        await self.bench.metadata.put(LOG_PATH, b"", found.version)

    # Facts

    async def step_sleep(self, line: Line) -> None:
        await trio.sleep(float(line.word()))

    async def step_see(self, line: Line) -> None:
        differ = await self._differ(line)
        assert not differ, differ

    async def is_see(self, line: Line) -> bool:
        return not await self._differ(line)

    async def _differ(self, line: Line) -> str:
        again = await self.recovered() if any(name.startswith("again.") for name in line.options) else self.cursor
        found = []
        for name in list(line.options):
            of = again if name.startswith("again.") else self.cursor
            fact = self._of_cursor(of, name.removeprefix("again.")) or await self._of_bench(name)
            wanted = line.option(name)
            if fact != wanted:
                found.append(f"{name}={fact}")
        return ", ".join(found)

    def _of_cursor(self, cursor: Cursor, what: str) -> str:
        facts: dict[str, Callable[[], str]] = {
            "mark": lambda: _at(cursor.mark_delete),
            "durable": lambda: _at(cursor.durable_mark_delete),
            "ranges": lambda: (
                ",".join(runs(range(first, last + 1)) for _, first, last in cursor.ack_ranges()) or "none"
            ),
            "acked": lambda: runs(entry for entry in range(SHOWN_MAX) if cursor.is_acked(Position(1, entry))),
            "left": lambda: ",".join(
                f"{each}:{words[0]:b}" for each in range(SHOWN_MAX) if (words := cursor.ack_set(Position(1, each)))
            ),
            "counts": lambda: ",".join(f"{at.entry_id}*{n}" for at, n in cursor.redeliveries.values.items()) or "none",
            "properties": lambda: ",".join(f"{name}:{value}" for name, value in cursor.cursor_properties),
            "index": lambda: _size(cursor.delayed_index),
        }
        return facts[what]() if what in facts else ""

    async def _of_bench(self, what: str) -> str:
        bench, ledgers = self.bench, self.bench.ledgers
        node = await bench.metadata.get(cursor_path(LOG_PATH, "sub"))
        assert node is not None
        named = decode_node(node.value)[0].ledger_id
        entries = [] if named < 0 or named not in ledgers.stored else ledgers.stored[named].entries
        infos = [pb.PositionInfo.FromString(each).quireDelayed for each in entries]
        facts: dict[str, Callable[[], Any]] = {
            "node": lambda: named,
            "node-version": lambda: node.version,
            "list-version": lambda: bench.list_version,
            "ledgers": lambda: runs(sorted(ledgers.listed())),
            "ends": lambda: ",".join(str(each.last_entry_id) for each in ledgers.stored.values()),
            "leaked": lambda: runs(sorted(ledgers.listed() ^ {named})),
            "failures": lambda: sum(map(len, ledgers.failures.values())),
            "multi": lambda: ",".join(type(op).__name__ for op in ledgers.multis[0]),
            "name": lambda: dict(ledgers.stored[named].custom_metadata)["pulsar/cursor"].decode(),
            "fenced": lambda: len(bench.fenced),
            "answers": lambda: (
                ",".join("ok" if each is None else type(each).__name__ for each in self.answers) or "none"
            ),
            "answered": lambda: self.answers.count(None),
            "pushed": lambda: self.writer().last_pushed,
            "written": lambda: self.cursor.store.entries_written if self.cursor.store else 0,
            "stored": lambda: _at(decode_chain(entries[-1:]).mark_delete),
            "indexes": lambda: ",".join(_size(each.index) for each in infos),
            "index-at": lambda: ",".join(str(each.entryId) if each.HasField("entryId") else "-" for each in infos),
        }
        return str(facts[what]())


SHORT: dict[str, Callable[[CursorPlayer, Line], object]] = {
    "ack": lambda it, line: it.cursor.ack_individual(places(line)),
    "persist": lambda it, line: it.cursor.wait_persisted(),
    "ask": lambda it, line: it.cursor.persisted(it.answers.append),
    "release": lambda it, line: it.bench.ledgers.release(),
    "confirm": lambda it, line: it.writer().confirm(),
    "taken": lambda it, line: it.bench.ledgers.close_by_others(line.number()),
    "lose": lambda it, line: it.bench.ledgers.delete(line.number()),
}
"""Verbs of one call. `taken` closes a ledger as others do."""


async def play(story: Story) -> None:
    """Play a story; StoryError of the first step that fails."""
    head = story.steps[0].line
    options: dict[str, Any] = {name: int(value) for name, value in head.options.items()}
    steps = story.steps[head.name == "config" :]
    async with in_bench(config=replace(CONFIG, **options)) as bench:
        await CursorPlayer(bench).play(replace(story, steps=steps))
