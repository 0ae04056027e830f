"""A bookie that runs gets more folders over HTTP: storage_expansion.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.metadata.bookies import decode_cookie, read_cookie
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located
from quire.servers.bookie.process import Ready, serve
from quire.world.real import real_world
from tests.unit.servers.bookie.asking import request

pytestmark = pytest.mark.real_clock

Ask = Callable[[], Awaitable[tuple[int, str]]]
OLD, NEW = "ledgers", "more"


class Machine:
    """A bookie's file and folders, and the cluster's metadata."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "bk_server.conf"
        self.store = MemoryStore(MemoryTree())

    def configure(self, *ledgers: str, **more: str) -> None:
        values = {
            "bookieId": "b1",
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "lo",
            "bookiePort": "0",
            "allowEphemeralPorts": "true",
            "allowLoopback": "true",
            "metadataServiceUri": "zk+hierarchical://zk1:2181/ledgers",
            "journalDirectories": str(self.folder / "journal"),
            "ledgerDirectories": ",".join(str(self.folder / each) for each in ledgers),
            "journalPreAllocSizeMB": "1",
            "httpServerEnabled": "true",
            "httpServerHost": "127.0.0.1",
            "httpServerPort": "0",
        }
        self.conf.write_text("".join(f"{name}={value}\n" for name, value in {**values, **more}.items()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Ask]:
        config = located(BOOKIE.load(self.conf), "/ledgers")
        stop, there = trio.Event(), trio.Event()
        found: list[Ready] = []

        def ready(about: Ready) -> None:
            found.append(about)
            there.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(serve, real_world(1), config, self.store, ready=ready, stop=stop, conf=self.conf)
            )
            with trio.fail_after(30):
                await there.wait()
                http = found[0].http
                assert http is not None
                yield partial(request, http, "PUT", "/api/v1/bookie/expand_storage", None)
            stop.set()

    async def stored(self) -> tuple[str, ...]:
        found = await read_cookie(self.store, "b1", root="/ledgers")
        assert found is not None
        return tuple(Path(each).name for each in found.value.ledger_directories)

    def stamped(self, name: str) -> tuple[str, ...]:
        cookie = decode_cookie((self.folder / name / "current/VERSION").read_bytes())
        return tuple(Path(each).name for each in cookie.ledger_directories)


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    await initialize_layout(made.store, rng=real_world(1).rng)
    made.configure(OLD)
    return made


async def test_a_new_folder_of_the_file_is_stamped_and_used_from_the_next_start_on(machine: Machine) -> None:
    async with machine.running() as ask:
        assert await ask() == (200, "Success expand storage")
        assert await machine.stored() == (OLD,)
        machine.configure(OLD, NEW, allowStorageExpansion="true")
        assert await ask() == (200, "Success expand storage")
        assert await machine.stored() == (OLD, NEW)
        assert {machine.stamped(each) for each in ("journal", OLD, NEW)} == {(OLD, NEW)}
    machine.configure(OLD, NEW)  # (the start itself may not expand)
    async with machine.running():
        assert (machine.folder / NEW / "current/DIRTY").exists()


async def test_what_may_not_be_added_is_refused_and_changes_nothing(machine: Machine) -> None:
    (machine.folder / NEW / "current").mkdir(parents=True)
    (machine.folder / NEW / "current/0.log").write_bytes(b"data")
    async with machine.running() as ask:
        for given, reason in (
            ((OLD, NEW), "set allowStorageExpansion=true"),
            ((OLD, NEW), "is not empty: add an empty folder"),
            ((NEW,), "is for another bookie"),
        ):
            allowed = {} if reason.startswith("set") else {"allowStorageExpansion": "true"}
            machine.configure(*given, **allowed)
            status, text = await ask()
            assert (status, text.partition(": ")[0]) == (500, "Exception while updating cookie for storage expansion")
            assert reason in text
        machine.conf.write_text("ledgerDirectories\n= =\nnosuchkey=1\n")
        assert (await ask())[0] == 500
        assert await machine.stored() == (OLD,)
        assert machine.stamped(OLD) == (OLD,)
