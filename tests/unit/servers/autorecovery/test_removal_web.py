"""Bookies are recovered and decommissioned over HTTP with the original's answers: removal_web.py, and
autorecovery/removal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from starlette.applications import Starlette

from autorecovery.config import AutoRecoveryConfig
from autorecovery.service import open_repair_client
from quire.ledger.client import LedgerClient
from quire.servers.autorecovery import removal_web
from quire.servers.autorecovery.removal_web import RemovalResources
from tests.support.waiting import until
from tests.unit.autorecovery.live import (
    CONFIG,
    all_copies_are_good,
    bookie_stops,
    client_of,
    marks_of,
    nobody_names,
    recovering,
    write,
)
from tests.unit.cli.shell.build import LiveCluster, with_bookies

GOLDEN = Path(__file__).parents[3] / "golden/bookkeeper/http/http.json"
pytestmark = pytest.mark.seeded

Ask = Callable[..., Awaitable[tuple[int, str]]]
Jobs = Callable[[], Awaitable[list[dict[str, Any]]]]


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[LiveCluster]:
    async with with_bookies(count=request.param) as made:
        yield made


@asynccontextmanager
async def with_web(cluster: LiveCluster) -> AsyncIterator[tuple[Ask, Jobs]]:
    store = cluster.store()

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[LedgerClient, AutoRecoveryConfig]]:
        async with open_repair_client(cluster.world, store, CONFIG) as client:
            yield client, CONFIG

    async with trio.open_nursery() as nursery:
        resources = RemovalResources(store, marks_of(cluster, store), "/ledgers", cluster.world.rng, opened, nursery)
        transport = httpx2.ASGITransport(app=Starlette(routes=resources.routes()))
        async with httpx2.AsyncClient(transport=transport, base_url="http://web") as client:

            async def ask(method: str, path: str, body: object = None) -> tuple[int, str]:
                content = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body else None
                answer = await client.request(method, f"/api/v1/autorecovery/{path}", content=content)
                return answer.status_code, answer.text

            async def jobs() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = json.loads((await ask("GET", "removals"))[1])
                return found

            yield ask, jobs
        nursery.cancel_scope.cancel()


async def over(jobs: Jobs) -> dict[str, Any]:
    """Wait until the last request is over; return it."""

    async def is_over() -> bool:
        return (await jobs())[-1]["state"] not in ("waiting", "working")

    await until(is_over)
    return (await jobs())[-1]


async def has_cookie(cluster: LiveCluster, name: str) -> bool:
    return await cluster.store().get(f"/ledgers/cookies/{name}") is not None


@pytest.mark.parametrize("cluster", [5], indirect=True)
async def test_bookies_are_recovered_and_their_cookies_deleted(cluster: LiveCluster) -> None:
    async with client_of(cluster) as client, with_web(cluster) as (ask, jobs):
        ids = [await write(client, 3, on=name) for name in ("b1", "b2", "b1")]
        await bookie_stops(cluster, "b1")
        answer = await ask("PUT", "bookie", {"bookie_src": ["b1", "b2"], "delete_cookie": True})
        assert answer == (200, "Success send recovery request command.")
        done = await over(jobs)
        assert (done["state"], done["ledgers"], done["ledgersDone"]) == ("done", 3, 3)
        for name in ("b1", "b2"):
            assert await nobody_names(client, name, ids)
            assert not await has_cookie(cluster, name)
        for each in ids:
            await all_copies_are_good(cluster, client, each, 3)


@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_cookies_are_kept_when_a_ledger_cannot_be_recovered(cluster: LiveCluster) -> None:
    async with client_of(cluster) as client, with_web(cluster) as (ask, jobs):
        await write(client, 3, on="b1")
        await ask("PUT", "bookie", {"bookie_src": ["b1"], "delete_cookie": True})
        done = await over(jobs)
        assert done["state"] == "failed"
        assert done["reason"] == "0 of 1 ledgers recovered, 1 cannot be now; see the log"
        assert await has_cookie(cluster, "b1")


@pytest.mark.parametrize("cluster", [5], indirect=True)
async def test_a_stopped_bookie_is_decommissioned_and_a_running_one_is_not(cluster: LiveCluster) -> None:
    async with client_of(cluster) as client, with_web(cluster) as (ask, jobs), recovering(cluster):
        ledger_id = await write(client, 3, on="b1")
        answer = await ask("PUT", "decommission", {"bookie_src": "b1"})
        assert answer == (200, "Success send decommission Bookie command b1")
        refused = await over(jobs)
        assert (refused["state"], refused["reason"]) == ("refused", "bookie b1 is running: stop it first")
        await bookie_stops(cluster, "b1")
        await ask("PUT", "decommission", {"bookie_src": "b1"})
        assert (await over(jobs))["state"] == "done"
        assert await nobody_names(client, "b1", [ledger_id])
        await all_copies_are_good(cluster, client, ledger_id, 3)
        assert await has_cookie(cluster, "b1")
        await ask("PUT", "decommission", {"bookie_src": "b1", "delete_cookie": "true"})
        assert (await over(jobs))["state"] == "done"
        assert not await has_cookie(cluster, "b1")


@pytest.mark.parametrize("cluster", [1], indirect=True)
async def test_what_was_asked_of_the_original_gets_its_answer(cluster: LiveCluster) -> None:
    calls = [each for each in json.loads(GOLDEN.read_text()) if each["path"].endswith("/decommission")]
    assert calls
    async with with_web(cluster) as (ask, _):
        for call in calls:
            assert await ask(call["method"], "decommission", call["request"]) == (call["status"], call["body"])


@pytest.mark.parametrize("cluster", [1], indirect=True)
async def test_requests_that_cannot_be_meant_begin_nothing(cluster: LiveCluster) -> None:
    async with with_web(cluster) as (ask, jobs):
        for method, path, body, status, text in (
            ("PUT", "bookie", None, 404, "No request body provide."),
            ("PUT", "bookie", "{", 404, "ERROR parameters: "),
            ("PUT", "bookie", "[" * 100_000, 404, "ERROR parameters: it is nested too deeply"),
            ("PUT", "bookie", {"bookie_src": "b1"}, 404, "ERROR parameters: bookie_src must be a list"),
            ("PUT", "bookie", {"bookie_src": ["b/1"]}, 404, "ERROR parameters: invalid bookie id"),
            ("PUT", "bookie", {"bookie_src": ["b1"], "delete": 1}, 404, "ERROR parameters: unknown: delete"),
            ("PUT", "bookie", {"bookie_src": ["b1"], "delete_cookie": "x"}, 404, "ERROR parameters: delete_cookie"),
            ("PUT", "bookie", {"bookie_src": []}, 404, "Not found method. Should be PUT method"),
            ("POST", "bookie", {"bookie_src": ["b1"]}, 404, "Not found method. Should be PUT method"),
            ("PUT", "decommission", None, 404, "Null request body for DecommissionService."),
            ("PUT", "decommission", "{", 500, "Internal Server Error"),
            ("PUT", "decommission", "[" * 100_000, 500, "Internal Server Error"),
            ("PUT", "decommission", {"bookie": "b1"}, 404, "Request body not contains bookie_src."),
            ("PUT", "decommission", {"bookie_src": "b/1"}, 404, "Exception when send decommission command."),
            ("PUT", "decommission", {"bookie_src": ["b1"]}, 404, "Exception when send decommission command."),
        ):
            found = await ask(method, path, body)
            assert (path, body, found[0], found[1][: len(text)]) == (path, body, status, text)
        assert await jobs() == []


@pytest.mark.parametrize("cluster", [1], indirect=True)
async def test_requests_wait_for_each_other_and_those_above_the_limit_are_refused(
    cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal_web, "WAITING_MAX", 2)
    async with with_web(cluster) as (ask, jobs), recovering(cluster, worker=False):
        async with client_of(cluster) as client:
            await write(client, 1, quorums=(1, 1, 1))
        await bookie_stops(cluster, "b1")
        await ask("PUT", "decommission", {"bookie_src": "b1"})  # never ends: no worker copies
        await until(lambda: _is(jobs, 0, "working"))
        assert (await ask("PUT", "decommission", {"bookie_src": "b1"}))[0] == 200
        assert len(await jobs()) == 1
        statuses = [(await ask("PUT", "decommission", {"bookie_src": f"x{each}"}))[0] for each in range(3)]
        assert statuses == [200, 200, 503]
        assert [each["state"] for each in await jobs()] == ["working", "waiting", "waiting"]


async def _is(jobs: Jobs, index: int, state: str) -> bool:
    return bool((await jobs())[index]["state"] == state)
