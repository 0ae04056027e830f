"""Steps of clients that create, write, read and recover ledgers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from quire.ledger import LedgerClient, LedgerConfig, LedgerWriter, open_client
from quire.ledger.errors import LedgerError
from quire.ledger.read_config import ReadConfig
from quire.metadata.ledger_metadata import Fragment
from quire.world.real import real_world
from tests.support.bookies import BookieCluster, sees
from tests.support.datadriven import Line
from tests.support.stories.bookie_verbs import BookieVerbs
from tests.support.stories.payloads import check, has, payload, rc_of_read
from tests.support.zookeeper import until


class Ledger:
    """A ledger of the story."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.count = 0
        """Entries that were appended."""
        self.is_loaded = False

    @property
    def id(self) -> int:
        return self.writer.ledger_id

    def append(self, count: int) -> None:
        self.writer.append([payload(each) for each in range(self.count, self.count + count)])
        self.count += count


class LedgerVerbs(BookieVerbs):
    """One client after the other, and ledgers by their names; a step without `ledger=` is about the last one."""

    def __init__(self, shared: BookieCluster, folder: Path) -> None:
        super().__init__(shared, folder)
        self.ledgers: dict[str, Ledger] = {}
        self._client: LedgerClient | None = None
        self._loading: list[trio.Event] = []
        self._noted: Sequence[Fragment] = ()
        self._is_writing = False
        self._written = trio.Event()

    async def step_client(self, line: Line) -> None:
        """client KEY=VALUE...: from now on; those before it stay, with their ledgers. All bookies that run are seen."""
        own = LedgerConfig()
        given = LedgerConfig(
            add_timeout_s=float(line.option("add-timeout", str(own.add_timeout_s))),
            read_timeout_s=float(line.option("read-timeout", str(own.read_timeout_s))),
            disable_ensemble_change=line.option("ensemble-change", "on") == "off",
            reads=ReadConfig(speculative_first_s=float(line.option("speculative", str(own.reads.speculative_first_s)))),
        )
        self._client = await self.entered(open_client(real_world(), self.cluster.uri, given))
        count = len([each for each in self.cluster.bookies if each.process])
        await until(partial(sees, self.client, count), "all are seen")

    async def is_seen(self, line: Line) -> bool:
        """until seen COUNT: a ledger over so many bookies could be created."""
        return await sees(self.client, line.number())

    @property
    def client(self) -> LedgerClient:
        assert self._client is not None, "the story has no client"
        return self._client

    def _ledger(self, line: Line) -> Ledger:
        """The ledger that the step names, or the last one."""
        name = line.option("ledger", next(reversed(self.ledgers)))
        return self.ledgers[name]

    async def step_create(self, line: Line) -> None:
        """create NAME... quorums=E/W/A"""
        quorums = line.option("quorums", "3/3/2")
        for name in line.words or ["a"]:
            self.ledgers[name] = await self._create(quorums)
            self.members = list(await self._ensemble(self.ledgers[name]))
        line.words.clear()

    async def _create(self, quorums: str) -> Ledger:
        ensemble, write, ack = map(int, quorums.split("/"))
        return Ledger(await self.client.create(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack))

    async def step_ledgers(self, line: Line) -> None:
        """ledgers COUNT entries=N quorums=E/W/A: closed ones."""
        quorums, entries = line.option("quorums", "3/3/2"), line.option_number("entries")
        for _ in range(line.number()):
            await self._write_ledger(quorums, entries)

    async def _write_ledger(self, quorums: str, entries: int) -> None:
        ledger = await self._create(quorums)
        ledger.append(entries)
        await ledger.writer.wait_confirmed(entries - 1)
        await ledger.writer.close()
        self.ledgers[f"closed-{ledger.id}"] = ledger

    async def step_keep_writing(self, line: Line) -> None:
        """keep-writing entries=N: one closed ledger after the other, until `stop-writing`."""
        assert self.nursery is not None
        self._written = trio.Event()
        self._is_writing = True
        self.nursery.start_soon(self._keep_writing, line.option_number("entries"))

    async def _keep_writing(self, entries: int) -> None:
        while self._is_writing:
            await self._write_ledger("3/3/2", entries)
        self._written.set()

    async def step_stop_writing(self, line: Line) -> None:
        self._is_writing = False
        await self._written.wait()

    async def step_write(self, line: Line) -> str | None:
        """write COUNT: at once, and wait until the last is confirmed -> the error of the writer, if any."""
        ledger = self._ledger(line)
        try:
            ledger.append(line.number())
            await ledger.writer.wait_confirmed(ledger.count - 1)
        except LedgerError as error:
            return type(error).__name__
        return None

    async def step_write_each(self, line: Line) -> None:
        """write-each COUNT below=S slow=N: one after the other; all but so many are confirmed within S seconds."""
        ledger, latencies = self._ledger(line), []
        below, slow = float(line.option("below", "inf")), line.option_number("slow", 0)
        for _ in range(line.number()):
            begun = time.monotonic()
            assert await ledger.writer.write(payload(ledger.count)) == ledger.count
            ledger.count += 1
            latencies.append(time.monotonic() - begun)
        assert len([each for each in latencies if each >= below]) <= slow, sorted(latencies)[-slow - 1 :]

    async def step_append(self, line: Line) -> None:
        """append COUNT: without waiting."""
        self._ledger(line).append(line.number())

    async def step_confirmed(self, line: Line) -> int:
        """confirmed -> how many entries."""
        return self._ledger(line).writer.last_add_confirmed + 1

    async def is_confirmed(self, line: Line) -> bool:
        """Exactly so many entries are confirmed."""
        return self._ledger(line).writer.last_add_confirmed + 1 == line.number()

    async def is_confirmed_by_all(self, line: Line) -> bool:
        """Each bookie of the ensemble has the last entry itself."""
        ledger = self._ledger(line)
        members = await self._ensemble(ledger)
        return all([await has(self.cluster.by_id(each), ledger.id, ledger.count - 1) for each in members])

    async def step_close(self, line: Line) -> None:
        await self._ledger(line).writer.close()

    async def step_load(self, line: Line) -> None:
        """load COUNT ahead=N: append so many again and again to each ledger, at most N of them unconfirmed, until
        `end-load` or an error."""
        count, ahead = line.number(), line.option_number("ahead", 0)
        assert self.nursery is not None
        for ledger in self.ledgers.values():
            ledger.is_loaded = True
            ended = trio.Event()
            self._loading.append(ended)
            self.nursery.start_soon(self._load, ledger, count, ahead, ended)

    async def _load(self, ledger: Ledger, count: int, ahead: int, ended: trio.Event) -> None:
        try:
            while ledger.is_loaded:
                ledger.append(count)
                await ledger.writer.wait_confirmed(ledger.count - 1 - ahead)
        except LedgerError:
            ledger.is_loaded = False
        ended.set()

    async def step_await_load(self, line: Line) -> None:
        """await-load COUNT: until each ledger has so many more confirmed entries."""
        count = line.number()
        wanted = {name: each.writer.last_add_confirmed + count for name, each in self.ledgers.items()}
        for name, ledger in self.ledgers.items():
            await ledger.writer.wait_confirmed(wanted[name])

    async def is_failing(self, line: Line) -> bool:
        """Every writer under load has failed."""
        return not any(each.is_loaded for each in self.ledgers.values())

    async def step_end_load(self, line: Line) -> None:
        """Stop, and close all ledgers; a writer that has failed fails the story."""
        for ledger in self.ledgers.values():
            assert ledger.is_loaded, f"the writer of ledger {ledger.id} has failed: {ledger.writer.error}"
            ledger.is_loaded = False
        for each in self._loading:
            await each.wait()
        for ledger in self.ledgers.values():
            await ledger.writer.close()

    async def step_read(self, line: Line) -> int | None:
        """read recover=no -> how many entries, each as it was written.

        read confirmed more=N: those that were confirmed, and at most N behind them.
        """
        ledger, recover = self._ledger(line), line.option("recover", "yes") == "yes"
        if not line.words:
            return await check(self.client, ledger.id, 0, recover=recover, more=ledger.count)
        assert line.word() == "confirmed"
        confirmed = ledger.writer.last_add_confirmed + 1
        await check(self.client, ledger.id, confirmed, recover=recover, more=line.option_number("more"))
        return None

    async def step_read_unconfirmed(self, line: Line) -> None:
        """read-unconfirmed COUNT: entry by entry, without recovery."""
        reader = await self.client.open(self._ledger(line).id, recover=False)
        for number in range(line.number()):
            [entry] = await reader.read_unconfirmed(number, number)
            assert bytes(entry) == payload(number)
        reader.close()

    async def step_ask(self, line: Line) -> str:
        """ask BOOKIE entry=N -> its own answer."""
        bookie, entry_id = self.bookie(line.word()), line.option_number("entry")
        return (await trio.to_thread.run_sync(rc_of_read, bookie, self._ledger(line).id, entry_id)).name

    async def is_on(self, line: Line) -> bool:
        """until on BOOKIE entry=N: the bookie has the entry."""
        return await has(self.bookie(line.word()), self._ledger(line).id, line.option_number("entry"))

    async def is_taking_adds(self, line: Line) -> bool:
        """A new ledger over all bookies takes an entry, this one's among them."""
        bookie, count = self.bookie(line.word()), len(self.cluster.bookies)
        try:
            writer = await self.client.create(ensemble_size=count, write_quorum=count, ack_quorum=count)
            await writer.write(b"room")
        except LedgerError:  # (a bookie without room is read-only)
            return False
        return bookie.id in (await self.client.read_metadata(writer.ledger_id)).fragments[0].bookies

    # --- metadata

    async def _ensemble(self, ledger: Ledger) -> tuple[str, ...]:
        return tuple((await self.client.read_metadata(ledger.id)).fragments[-1].bookies)

    async def is_replaced(self, line: Line) -> bool:
        """The bookie is not in the ensemble any more."""
        return self.bookie(line.word()).id not in await self._ensemble(self._ledger(line))

    async def step_members_left(self, line: Line) -> None:
        """members-left: `first` and so on are from now on those of the first ensemble that are in the last one."""
        now = await self._ensemble(self._ledger(line))
        self.members = [each for each in now if each in self.members]

    async def is_in_fragments(self, line: Line) -> bool:
        """until in-fragments COUNT"""
        return len((await self.client.read_metadata(self._ledger(line).id)).fragments) == line.number()

    async def step_note_fragments(self, line: Line) -> None:
        """note-fragments: for `fragments-kept`."""
        self._noted = (await self.client.read_metadata(self._ledger(line).id)).fragments

    async def step_fragments_kept(self, line: Line) -> None:
        """fragments-kept COUNT: the first ones are as noted, and each begins behind the one before it."""
        count, fragments = line.number(), (await self.client.read_metadata(self._ledger(line).id)).fragments
        assert fragments[:count] == self._noted[:count]
        firsts = [each.first_entry_id for each in fragments]
        assert firsts == sorted(set(firsts)), firsts

    async def step_state(self, line: Line) -> str:
        """state -> of the ledger's metadata."""
        return (await self.client.read_metadata(self._ledger(line).id)).state.name

    async def step_is_member(self, line: Line) -> None:
        """is-member BOOKIE: some ledger still names it."""
        assert not await self._is_named_by_none(self.bookie(line.word()).id), "no ledger names it"

    async def is_named_by_none(self, line: Line) -> bool:
        """No ledger of the story names the bookie."""
        return await self._is_named_by_none(self.bookie(line.word()).id)

    async def _is_named_by_none(self, bookie_id: str) -> bool:
        for ledger in list(self.ledgers.values()):
            metadata = await self.client.read_metadata(ledger.id)
            if any(bookie_id in each.bookies for each in metadata.fragments):
                return False
        return True
