"""A bookie with its web port, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from bookie.bookie import Bookie, open_bookie
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.peer_jobs import PeerJobs
from quire.servers.bookie.web import web_app
from quire.servers.bookie.web_ports import bookie_metrics
from quire.service.http import serve_web
from quire.service.serve import ConnectionCounts
from quire.world.real import real_world
from tests.unit.servers.bookie.asking import request

Ask = Callable[..., Awaitable[tuple[int, str]]]


class Web(NamedTuple):
    """A bookie and its web port."""

    ask: Ask
    bookie: Bookie
    store: MemoryStore


class WebWithJobs(NamedTuple):
    """The same with the jobs that use other bookies, which are not started."""

    ask: Ask
    bookie: Bookie
    store: MemoryStore
    jobs: PeerJobs
    url: str


@asynccontextmanager
async def with_web(folder: Path, settings: dict[str, Any] | None = None) -> AsyncIterator[Web]:
    async with with_web_and_jobs(folder, settings) as web:
        yield Web(web.ask, web.bookie, web.store)


@asynccontextmanager
async def with_web_and_jobs(folder: Path, settings: dict[str, Any] | None = None) -> AsyncIterator[WebWithJobs]:
    world, store = real_world(1), MemoryStore(MemoryTree())
    await initialize_layout(store, rng=world.rng)
    config = BOOKIE.build(
        {
            "bookieId": "b:1",
            "advertisedAddress": "127.0.0.1",
            "journalDirectories": (str(folder / "journal"),),
            "ledgerDirectories": (str(folder / "ledgers"),),
            "journalPreAllocSizeMB": 1,
            "httpServerHost": "127.0.0.1",
            "httpServerPort": 0,
            "quireZooKeeperAuth": "digest:me:secret",
            **(settings or {}),
        }
    )
    stop = trio.Event()
    async with open_bookie(world, config.bookie, store) as bookie, trio.open_nursery() as nursery:
        jobs = PeerJobs(world, bookie, store, config, None)

        async def serve(task_status: trio.TaskStatus[tuple[str, int]]) -> None:
            metrics = bookie_metrics(bookie, ConnectionCounts(), config, jobs)
            app = web_app(bookie, store, config, nursery, metrics, jobs)
            await serve_web(app, config.http.host, config.http.port, stop=stop, task_status=task_status)

        address = await nursery.start(serve)

        async def ask(path: str, method: str = "GET", body: object = None) -> tuple[int, str]:
            return await request(address, method, path, body)

        with trio.fail_after(30):
            yield WebWithJobs(ask, bookie, store, jobs, f"http://127.0.0.1:{address[1]}")
        stop.set()
