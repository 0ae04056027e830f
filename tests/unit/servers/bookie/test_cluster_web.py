"""A bookie's answers about its cluster are the original's: cluster_web.py and autorecovery/auditing/overview.py."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.ledger.opening import open_client_on
from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Create
from quire.servers.bookie import cluster_web
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located
from quire.servers.bookie.process import Ready, serve
from quire.wire.bookkeeper.entry import DigestType
from quire.world.real import real_world
from tests.unit.servers.bookie.asking import request

pytestmark = pytest.mark.real_clock

GOLDEN = Path(__file__).parents[3] / "golden/bookkeeper/http/http.json"
Ask = Callable[..., Awaitable[tuple[int, str]]]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Ask, MemoryStore, str]]:
    """A bookie with its HTTP server, as it runs in a process; with requests, the metadata, and its id."""
    world, store = real_world(1), MemoryStore(MemoryTree())
    await initialize_layout(store, rng=world.rng)
    values: dict[str, Any] = {
        "advertisedAddress": "127.0.0.1",
        "listeningInterface": "lo",
        "bookiePort": 0,
        "allowEphemeralPorts": True,
        "allowLoopback": True,
        "journalDirectories": (str(folder / "journal"),),
        "ledgerDirectories": (str(folder / "ledgers"),),
        "journalPreAllocSizeMB": 1,
        "httpServerEnabled": True,
        "httpServerHost": "127.0.0.1",
        "httpServerPort": 0,
    }
    config = located(BOOKIE.build(values), "/ledgers")
    stop, there = trio.Event(), trio.Event()
    found: list[Ready] = []

    def ready(about: Ready) -> None:
        found.append(about)
        there.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, world, config, store, ready=ready, stop=stop))
        with trio.fail_after(30):
            await there.wait()
            http = found[0].http
            assert http is not None

            async def ask(path: str, method: str = "GET", body: object = None) -> tuple[int, str]:
                return await request(http, method, path, body)

            yield ask, store, config.id
        stop.set()


def original(path: str) -> dict[str, Any]:
    return next(call for call in json.loads(GOLDEN.read_text()) if call["path"].startswith(path))


async def write(store: MemoryStore, payloads: list[bytes], *, close: bool = True) -> int:
    async with open_client_on(real_world(1), store) as client:
        writer = await client.create(
            ensemble_size=1, write_quorum=1, ack_quorum=1, digest_type=DigestType.CRC32C, password=b"p"
        )
        writer.append(payloads)
        await writer.wait_confirmed(len(payloads) - 1)
        if close:
            await writer.close()
        return writer.ledger_id


async def test_the_cluster_is_counted_and_its_state_told(tmp_path: Path) -> None:
    async with running(tmp_path) as (ask, store, _):
        status, text = await ask("/api/v1/bookie/cluster_info")
        assert status == 200
        assert list(json.loads(text)) == list(json.loads(original("/api/v1/bookie/cluster_info")["body"]))
        quiet = {
            "auditorElected": False,
            "auditorId": "",
            "clusterUnderReplicated": False,
            "ledgerReplicationEnabled": True,
            "totalBookiesCount": 1,
            "writableBookiesCount": 1,
            "readonlyBookiesCount": 0,
            "unavailableBookiesCount": 0,
        }
        assert json.loads(text) == quiet
        await bookies.register(store, "two:2", BookieServiceInfo(endpoints=()), read_only=True)
        await store.multi([Create(path="/ledgers/cookies/three:3")])
        world = real_world(1)
        marks = UnderreplicatedLedgers(store, rng=world.rng, wall_ms=world.clock.wall_ms, owner="me")
        await marks.prepare()
        await marks.mark(7, ["three:3"])
        await marks.disable()
        changed = {
            "clusterUnderReplicated": True,
            "ledgerReplicationEnabled": False,
            "totalBookiesCount": 3,
            "readonlyBookiesCount": 1,
            "unavailableBookiesCount": 1,
        }
        assert json.loads((await ask("/api/v1/bookie/cluster_info"))[1]) == {**quiet, **changed}


async def test_disks_of_all_bookies_are_told_in_the_originals_words(tmp_path: Path) -> None:
    async with running(tmp_path) as (ask, _, bookie_id):
        status, text = await ask("/api/v1/bookie/list_bookie_info")

        def shape(answer: str) -> set[str]:
            return {re.sub(r"[\d.]+", "N", value) for value in json.loads(answer).values()}

        assert status == 200
        assert list(json.loads(text)) == [bookie_id, "ClusterInfo: "]
        assert shape(text) == shape(original("/api/v1/bookie/list_bookie_info")["body"])


async def test_entries_are_read_as_the_original_reads_them(tmp_path: Path) -> None:
    async with running(tmp_path) as (ask, store, _):
        call = original("/api/v1/ledger/read")
        expected = json.loads(call["body"])
        ledger_id = await write(store, [b"", b"\x01", bytes(range(8, 256)), b"abc"])
        path = f"/api/v1/ledger/read?ledger_id={ledger_id}"
        status, text = await ask(f"{path}&start_entry_id=1&end_entry_id=2")
        assert status == 200
        assert json.loads(text)["1"] == expected["1"]
        assert json.loads(text)["2"][:120] == "".join(map(chr, range(8, 128)))
        assert set(json.loads(text)["2"][120:]) == {"\ufffd"}
        assert list(json.loads((await ask(path))[1])) == ["0", "1", "2", "3"]
        assert list(json.loads((await ask(f"{path}&start_entry_id=3&end_entry_id=99"))[1])) == ["3"]
        assert json.loads((await ask(f"{path}&page=1"))[1])["Entries for page: "] == "1"
        assert json.loads((await ask(f"{path}&page=2"))[1]) == {"Entries for page: ": "2"}


async def test_reads_that_cannot_be_answered_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as (ask, store, _):
        ledger_id = await write(store, [b"x" * 100] * 10)
        path = f"/api/v1/ledger/read?ledger_id={ledger_id}"
        assert (await ask("/api/v1/ledger/read")) == (
            404,
            "Not found method. Should be GET method, with ledger_id provided",
        )
        assert (await ask("/api/v1/ledger/read?ledger_id=x"))[0] == 400
        for wrong in (-1, 1 << 63):
            assert await ask(f"/api/v1/ledger/read?ledger_id={wrong}") == (400, f"{wrong} is not a ledger id")
        assert await ask(f"{path}&start_entry_id=5&end_entry_id=4") == (
            500,
            "parameter for start_entry_id: 5 and end_entry_id: 4 conflict with page=-1",
        )
        assert (await ask("/api/v1/ledger/read?ledger_id=999"))[0] == 500
        monkeypatch.setattr(cluster_web, "BYTES_MAX", 500)
        assert (await ask(path))[0] == 400
        assert (await ask(f"{path}&end_entry_id=3"))[0] == 200


async def test_a_value_that_a_key_has_may_be_set_and_another_one_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as (ask, _, _):
        path = "/api/v1/config/server_config"
        assert await ask(path, "PUT") == (404, "Request body not found. should contains k-v pairs")
        assert await ask(path, "PUT", {"journalMaxBackups": 5, "journalSyncData": True}) == (
            200,
            "Success set server config.",
        )
        status, text = await ask(path, "PUT", {"journalMaxBackups": 7})
        assert status == 400
        assert text == "journalMaxBackups: takes effect at a start; change the file and restart the bookie"
        assert (await ask(path, "PUT", {"nosuchKey": "1"}))[0] == 400
