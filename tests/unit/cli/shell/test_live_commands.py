"""Commands on running bookies: what they print, and what is left in the cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from quire.cli.shell.errors import ShellError, UsageError
from quire.cli.shell.ledger import reading
from quire.cli.shell.metadata import bookies
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError, LedgerFencedError
from quire.metadata import ledger_codec
from quire.metadata.bookies import BookieServiceInfo, Endpoint, register
from quire.metadata.ledgers import ledger_path
from quire.wire.bookkeeper.entry import DigestType
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.support.waiting import until
from tests.unit.autorecovery.live import (
    all_copies_are_good,
    bookie_stops,
    client_of,
    marks_of,
    nobody_names,
    recovering,
    write,
)
from tests.unit.cli.shell.build import LiveCluster, with_bookies

TESTDATA = Path(__file__).parent / "testdata"


class Operator:
    """An operator with a shell, a client and auto recovery."""

    def __init__(self, cluster: LiveCluster, client: LedgerClient, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.client = client
        self.stack = stack
        self.marks = marks_of(cluster, owner="worker1")
        self.first = ""
        self.ledgers: list[int] = []
        """Ids of the ledgers written so far: the text numbers them from 0."""
        self.began = trio.current_time()

    async def shown(self, text: str) -> str:
        """Return a text without what depends on the seed and on the time."""
        numbers = {str(ledger_id): str(number) for number, ledger_id in enumerate(self.ledgers)}
        text = re.sub(r'(ledger |"ledgerId": )(\d+)', lambda found: found[1] + numbers.get(found[2], found[2]), text)
        text = re.sub(r'! \d+ of \d+ ledgers copied\n|"ledgers": \d+, ', "", text)
        text = re.sub(r"(?m)^0:\t(.*)$", lambda found: "0:\t" + " ".join(sorted(found[1].split())), text)
        for name, port in self.cluster.ports.items():
            text = text.replace(f"Port:{port}", f"Port:<{name}>")
        async for mark in self.marks.list():
            text = text.replace(f"Ctime : {mark.ctime_ms}", f"Ctime : <{mark.ledger_id}>")
        return text

    async def answer(self, step: Line) -> str:
        if step.name in ("shell", "ids"):
            return await self.type(step)
        if step.name in ("write", "ledger", "open", "append", "longer", "members", "names", "state", "copies"):
            return await self.use_ledgers(step)
        return await self.look(step)

    async def type(self, step: Line) -> str:
        """Run a command; FIRST is the first member of the ledger whose members were asked for last."""
        try:
            return await self.typed(step)
        except UsageError as error:
            return f"exit {error.code}, {error}"
        except LedgerError as error:
            return re.sub("cannot be read: .*", "cannot be read", f"{type(error).__name__}: {error}")

    async def typed(self, step: Line) -> str:
        words = step.word().replace("FIRST", self.first).split()
        if step.name == "shell":
            return await self.shown((await self.cluster.run(*words)).told)
        ran = await self.cluster.run(*words, "--json")
        return replace(ran, out=" ".join(str(value["entryId"]) for value in ran.values) + "\n").told

    async def use_ledgers(self, step: Line) -> str:
        """Write ledgers, with `ledger` and `open` under another password; look at their metadata and copies."""
        number = step.number()
        if step.name not in ("write", "ledger", "open", "append"):
            number = self.ledgers[number]
        match step.name:
            case "write":
                quorums = step.option("quorums", "3,3,2").split(",")
                size, written, acks = map(int, quorums)
                close = not (step.words and step.word() == "open")
                on = step.option("on", "") or None
                return self.made(await write(self.client, number, quorums=(size, written, acks), close=close, on=on))
            case "ledger":
                self.writer = await self.client.create(
                    ensemble_size=3,
                    write_quorum=step.option_number("write-quorum", 2),
                    ack_quorum=2,
                    password=b"pw",
                    digest_type=DigestType.HMAC,
                )
                for entry in range(number):
                    await self.writer.write(b"entry %d" % entry)
                await self.writer.close()
                return self.made(self.writer.ledger_id)
            case "open":
                self.writer = await self.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
                for entry in range(number):
                    await self.writer.write(b"x%d" % entry)
                return self.made(self.writer.ledger_id)
            case "append":
                try:
                    await self.writer.write(b"%d" % number)
                except LedgerFencedError:
                    return "fenced"
                return "written"
            case "longer":
                store, path = self.cluster.store(), ledger_path("/ledgers", number)
                node = await store.get(path)
                assert node is not None
                longer = replace(ledger_codec.decode(node.value), last_entry_id=step.option_number("last"))
                await store.put(path, ledger_codec.encode(longer), node.version)
                return ""
            case "names":
                return "no" if await nobody_names(self.client, step.word(), [number]) else "yes"
            case "copies":
                await all_copies_are_good(self.cluster, self.client, number, step.number())
                return "good"
        metadata = await self.client.read_metadata(number)
        if step.name == "state":
            return metadata.state.name
        self.first = metadata.fragments[0].bookies[0]
        return " ".join(sorted(metadata.fragments[0].bookies))

    def made(self, ledger_id: int) -> str:
        self.ledgers.append(ledger_id)
        return str(len(self.ledgers) - 1)

    async def look(self, step: Line) -> str:
        cluster, marks = self.cluster, self.marks
        match step.name:
            case "stop":
                await bookie_stops(cluster, step.word())
            case "register":
                name, (host, _, port) = step.word(), step.word().partition(":")
                info = BookieServiceInfo(endpoints=(Endpoint(host=host, port=int(port)),))
                await register(cluster.store(), name, info, read_only=bool(step.words and step.word()))
            case "recovering":
                worker = step.option("worker", "yes") == "yes"
                await self.stack.enter_async_context(recovering(cluster, name=step.word(), worker=worker))
                await until(self.is_elected)
            case "cookie":
                return "none" if await cluster.store().get(f"/ledgers/cookies/{step.word()}") is None else "there"
            case "mark":
                await marks.mark(step.number(), step.word().split(","))
            case "unmark":
                await marks.unmark(step.number())
            case "lock-but":
                locked = await marks.lock_next([step.number()])
                return "none" if locked is None else str(locked.ledger_id)
            case "enabled":
                return "yes" if await marks.is_enabled() else "no"
            case "delay":
                delay = await marks.read_recovery_delay()
                return "none" if delay is None else str(delay.value)
            case "sleep":
                await trio.sleep(step.number())
            case "begin":
                self.began = trio.current_time()
            case "elapsed":
                return "in time" if trio.current_time() - self.began < step.number() else "too late"
            case "moved":
                name, ledger_id = step.word(), self.ledgers[step.number()]
                await until(lambda: nobody_names(self.client, name, [ledger_id]))
            case _:
                raise step.unknown()
        return ""

    async def is_elected(self) -> bool:
        try:
            return (await self.cluster.run("whoisauditor", "--json")).code == 0
        except ShellError:
            return False


@asynccontextmanager
async def operating(bookies: int) -> AsyncIterator[Operator]:
    async with with_bookies(count=bookies) as cluster, client_of(cluster) as client, AsyncExitStack() as stack:
        yield Operator(cluster, client, stack)


@pytest.fixture(autouse=True)
def no_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    async def names(host: str, port: int) -> tuple[str, str]:
        return host, f"name-of-{host}"

    monkeypatch.setattr(bookies, "_names", names)


@pytest.mark.seeded
@pytest.mark.parametrize(
    "dialogue",
    [
        *dialogues(TESTDATA / "reading.txt"),
        *dialogues(TESTDATA / "marks.txt"),
        *dialogues(TESTDATA / "lost_bookies.txt"),
    ],
)
async def test_a_command(dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bookies 3` run on one host as b1, b2 and b3; ledgers have the ids 0, 1 and so on."""
    monkeypatch.setattr(reading, "READS_AT_ONCE", dialogue.command.option_number("at-once", reading.READS_AT_ONCE))
    async with operating(dialogue.command.number()) as operator:
        await dialogue.acheck(operator.answer, ShellError)
