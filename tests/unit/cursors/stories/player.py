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
from typing import Any

from cursors.config import CursorConfig
from cursors.cursor import Cursor
from cursors.errors import CursorError
from cursors.opening import create_cursor, cursor_path, recover_cursor
from cursors.position_info import ENTRY_BYTES_MAX, decode_chain, decode_node
from quire.ledger.position import Position
from quire.metadata.errors import MetadataError
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import Put
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.datadriven import Line
from tests.support.nodes import node_at
from tests.support.stories.text import Story
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, fake_log, in_bench
from tests.unit.managed_ledger.fake_ledgers import FakeWriter
from tests.unit.managed_ledger.stories.facts import FactStage, at, runs

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


def _size(index: bytes) -> str:
    """Return the size of an index that `index` made, or `wrong`."""
    return str(len(index)) if index == b"i" * len(index) else "wrong"


class CursorPlayer(FactStage):
    """Plays the steps of one story."""

    refusals = (CursorError, MetadataError)

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.ledgers)
        self.bench = bench
        self.cursor: Cursor
        self.answers: list[CursorError | None] = []
        self.found: Cursor

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
        return self.ledgers.writers[max(self.ledgers.writers)]

    def store(self, line: Line) -> MemoryStore:
        """Return the session of the cursor, or that of its `ledgers`."""
        return self.ledgers.store if line.words and line.word() == "ledgers" else self.bench.metadata

    async def step_other_changes_node(self, line: Line) -> None:
        path = cursor_path(LOG_PATH, "sub")
        found = await node_at(self.bench.metadata, path)
        await self.bench.metadata.multi([Put(path=path, value=found.value, version=found.version)])

    async def step_owner_changes_list(self, line: Line) -> None:
        found = await node_at(self.bench.metadata, LOG_PATH)
        await self.bench.metadata.put(LOG_PATH, b"", found.version)

    # Facts

    async def _differ(self, line: Line) -> str:
        self.found = await self.recovered() if any(name.startswith("again.") for name in line.options) else self.cursor
        return await super()._differ(line)

    async def fact(self, name: str) -> object:
        of, what = (self.found, name.removeprefix("again.")) if name.startswith("again.") else (self.cursor, name)
        return OF_CURSOR[what](of) if what in OF_CURSOR else await self._of_bench(name)

    async def _of_bench(self, what: str) -> object:
        bench, ledgers = self.bench, self.ledgers
        node = await bench.metadata.get(cursor_path(LOG_PATH, "sub"))
        assert node is not None
        named = decode_node(node.value)[0].ledger_id
        entries = [] if named < 0 or named not in ledgers.stored else ledgers.stored[named].entries
        infos = [pb.PositionInfo.FromString(each).quireDelayed for each in entries]
        facts: dict[str, Callable[[], object]] = {
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
            "stored": lambda: at(decode_chain(entries[-1:]).mark_delete),
            "indexes": lambda: ",".join(_size(each.index) for each in infos),
            "index-at": lambda: ",".join(str(each.entryId) if each.HasField("entryId") else "-" for each in infos),
        }
        return facts[what]()


OF_CURSOR: dict[str, Callable[[Cursor], str]] = {
    "mark": lambda cursor: at(cursor.mark_delete),
    "durable": lambda cursor: at(cursor.durable_mark_delete),
    "ranges": lambda cursor: ",".join(runs(range(first, last + 1)) for _, first, last in cursor.ack_ranges()) or "none",
    "acked": lambda cursor: runs(entry for entry in range(SHOWN_MAX) if cursor.is_acked(Position(1, entry))),
    "left": lambda cursor: ",".join(
        f"{each}:{words[0]:b}" for each in range(SHOWN_MAX) if (words := cursor.ack_set(Position(1, each)))
    ),
    "counts": lambda cursor: ",".join(f"{at.entry_id}*{n}" for at, n in cursor.redeliveries.values.items()) or "none",
    "properties": lambda cursor: ",".join(f"{name}:{value}" for name, value in cursor.cursor_properties),
    "index": lambda cursor: _size(cursor.delayed_index),
}
CursorPlayer.short = {
    "ack": lambda it, line: it.cursor.ack_individual(places(line)),
    "persist": lambda it, line: it.cursor.wait_persisted(),
    "ask": lambda it, line: it.cursor.persisted(it.answers.append),
    "release": lambda it, line: it.ledgers.release(),
}


async def play(story: Story) -> None:
    """Play a story; StoryError of the first step that fails."""
    head = story.steps[0].line
    options: dict[str, Any] = {name: int(value) for name, value in head.options.items()}
    steps = story.steps[head.name == "config" :]
    async with in_bench(config=replace(CONFIG, **options)) as bench:
        await CursorPlayer(bench).play(replace(story, steps=steps))
