"""A standalone server scrubs, and its only copy is reported if it is damaged.

Covers quire/servers/bookie/scrub_web.py (scrub_route) and quire/servers/standalone/process.py. There is a whole
server in tests/cluster/test_damage.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import trio
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from bookie.bookie import Bookie, open_bookie
from bookie.errors import StorageDamagedError
from bookie.scrubber.scrubber import ALONE, RETRY_S, Scrubber, ScrubCounts
from broker.admin.permissions.access import super_user_check
from broker.security.authorization.authorizer import Authorizer
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.addresses import Addresses
from quire.servers.bookie.scrub_web import SCRUB_PATH, scrub_route
from quire.servers.standalone import process as standalone
from quire.servers.standalone.config import STANDALONE
from quire.servers.standalone.process import run_standalone
from quire.world.doors import World
from simulation.machines.world import Universe, on_host
from tests.support.waiting import until
from tests.unit.bookie.build import CONFIG, LEDGERS, Client, entry, opened
from tests.unit.broker.security.roles import OPTIONS, ROLES, principal, store_roles


async def started(world: World, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a server on /data, store a ledger in its bookie, and stop it."""
    bookies: list[Bookie] = []
    ready, stop = trio.Event(), trio.Event()

    @asynccontextmanager
    async def opened(*given: Any) -> AsyncGenerator[Bookie, None]:
        async with open_bookie(*given) as bookie:
            bookies.append(bookie)
            yield bookie

    def is_ready(_: Addresses) -> None:
        ready.set()

    monkeypatch.setattr(standalone, "open_bookie", opened)
    config = STANDALONE.build(settings)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await run_standalone(world, config, data_dir="/data", ready=is_ready, stop=stop, http=False)

            nursery.start_soon(run)
            await ready.wait()
            await Client(bookies[0]).add(700, 0, 5)
            stop.set()


@pytest.mark.expect_error("the bookie does not start with localConsistencyCheckOnStartup=true")
async def test_the_check_at_the_start_of_a_standalone_server_refuses_damage(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_host(universe) as world:
        await started(world, {}, monkeypatch)
        disk = universe.host("host").disk
        path, at = next(
            (path, at)
            for path in disk.paths()
            if path.endswith(".log") and (at := disk.read(path).find(entry(700, 3))) >= 0
        )
        disk.flip(path, at + 15, 1)
        with pytest.RaisesGroup(
            pytest.RaisesExc(StorageDamagedError, match="Bring the data directory back"), flatten_subgroups=True
        ):
            await started(world, {"localConsistencyCheckOnStartup": True}, monkeypatch)


@pytest.mark.expect_error(ALONE)
async def test_a_damaged_only_copy_is_reported_once_and_stays_marked(world: World) -> None:
    """Its row leads elsewhere, so the digest is not needed."""
    tree = MemoryTree()
    async with opened(world, tree, replace(CONFIG, gc_wait_ms=100_000_000)) as bookie:
        await Client(bookie).add(7, 0, 5)
        await bookie.checkpoint()
        path = f"{LEDGERS}/0.log"
        data = world.disk.read(path)
        at = data.index(entry(7, 3))
        file = world.disk.open(path)
        file.pwrite(bytes([data[at + 15] ^ 2]), at + 15)
        scrubber = Scrubber(bookie, MemoryStore(tree), None)

        def has_run(rounds: int) -> bool:
            return scrubber.counts.rounds == rounds

        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrubber.run)
            for rounds in (1, 2):
                scrubber.ask()
                await until(partial(has_run, rounds), within=60)
            await trio.sleep(RETRY_S + 50)  # it is looked at again, without another line
            assert list(scrubber.records[0].damages[7]) == [3]
            await bookie.storage.delete_ledger(7)
            await until(lambda: not scrubber.records[0].damages, within=2000)
            nursery.cancel_scope.cancel()


async def test_only_super_users_reach_the_scrubber_of_a_standalone_server() -> None:
    store = MemoryStore(MemoryTree())
    await store_roles(store)
    authorizer = Authorizer(store, OPTIONS)
    counts = ScrubCounts()
    scrubber: Any = SimpleNamespace(rate=60, counts=counts, records=[], bytes_copied=0)
    bookie: Any = SimpleNamespace(config=SimpleNamespace(ledger_directories=()))
    app = Starlette(routes=[scrub_route(bookie, scrubber, super_user_check(authorizer))])
    found: dict[str, list[int]] = {}
    for role in ROLES:

        async def with_role(scope: Scope, receive: Receive, send: Send, role: str = role) -> None:
            await app({**scope, "principal": principal(role)}, receive, send)

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(with_role), base_url="http://s") as client:
            body = {"entriesPerSecond": 5}
            answers = await client.get(SCRUB_PATH), await client.put(SCRUB_PATH, json=body)
            found[role] = [answer.status_code for answer in answers]
    assert found.pop("super") == [200, 200]
    assert set(map(tuple, found.values())) == {(401, 401)}
