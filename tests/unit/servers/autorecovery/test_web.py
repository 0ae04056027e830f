"""The web port of `quire autorecovery` gives the original's answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import trio
from starlette.applications import Starlette

from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.metadata import marks as form
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Kind
from quire.servers.autorecovery.web import DELAY_S_MAX, AutorecoveryResources

GOLDEN = Path(__file__).parents[3] / "golden/bookkeeper/http/http.json"
BASE = "/api/v1/autorecovery"
Ask = Callable[..., Awaitable[httpx2.Response]]


@asynccontextmanager
async def with_web() -> AsyncIterator[tuple[Ask, MemoryTree, MemoryStore, UnderreplicatedLedgers]]:
    tree = MemoryTree()
    store = MemoryStore(tree)
    await store.create("/ledgers", b"", make_parents=True)
    marks = UnderreplicatedLedgers(store, rng=Random(1), wall_ms=lambda: 1000, owner="test")
    await marks.prepare()
    app = Starlette(routes=AutorecoveryResources(store, marks, "/ledgers").routes())
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://web") as client:

        async def ask(method: str, path: str, body: object = None) -> httpx2.Response:
            content = None if body is None else json.dumps(body).encode()
            return await client.request(method, f"{BASE}/{path}", content=content)

        with trio.fail_after(60):
            yield ask, tree, store, marks


async def elect(store: MemoryStore, name: str) -> None:
    folder = "/ledgers/underreplication/auditorelection/V_"
    vote = form.encode_owner(name)
    await store.create(folder, vote, kind=Kind.EPHEMERAL, sequential=True, make_parents=True)


async def test_the_originals_answers_are_ours_byte_for_byte() -> None:
    recorded: list[dict[str, Any]] = [
        each
        for each in json.loads(GOLDEN.read_text())
        if each["path"].startswith(BASE) and not each["path"].endswith("/decommission")
    ]
    assert len(recorded) == 9
    async with with_web() as (ask, _, store, marks):
        await elect(store, "127.0.0.1:3281")
        await marks.set_recovery_delay(5)
        for each in recorded:
            wanted = each["body"]
            if "list_under" in each["path"]:  # in an order that is chance there
                ledger_ids = json.loads(wanted)
                for ledger_id in ledger_ids:
                    await marks.mark(ledger_id, ["127.0.0.1:3282"])
                wanted = f"[ {', '.join(map(str, sorted(ledger_ids)))} ]"
            answer = await ask(each["method"], each["path"].removeprefix(f"{BASE}/"), each["request"])
            assert (each["path"], answer.status_code, answer.text) == (each["path"], each["status"], wanted)
        assert await marks.recovery_delay() == 3
        assert await marks.is_enabled()


async def test_marks_are_chosen_by_the_bookies_they_name() -> None:
    async with with_web() as (ask, _, _, marks):
        nothing = await ask("GET", "list_under_replicated_ledger")
        assert (nothing.status_code, nothing.text) == (404, "No under replicated ledgers found")
        await marks.mark(7, ["a:1"])
        await marks.mark(8, ["a:1", "b:1"])

        async def found(query: str) -> Any:
            return (await ask("GET", f"list_under_replicated_ledger?{query}")).json()

        assert await found("missingreplica=b:1") == [8]
        assert await found("missingreplica=a:1&excludingmissingreplica=b:1") == [7]
        assert await found("printmissingreplica") == {"7": ["a:1"], "8": ["a:1", "b:1"]}
        text = (await ask("GET", "list_under_replicated_ledger?printmissingreplica&missingreplica=b:1")).text
        assert text == '{\n  "8" : [ "a:1", "b:1" ]\n}'


async def test_an_audit_is_asked_for_by_setting_the_delay_again() -> None:
    async with with_web() as (ask, _, store, marks):
        assert (await ask("GET", "lost_bookie_recovery_delay")).status_code == 404
        assert (await ask("GET", "who_is_auditor")).status_code == 404
        await marks.set_recovery_delay(60)
        before = await marks.read_recovery_delay()
        await elect(store, "a:1")
        assert (await ask("PUT", "trigger_audit")).status_code == 200
        after = await marks.read_recovery_delay()
        assert before is not None
        assert after is not None
        assert (after.value, after.version) == (60, before.version + 1)


async def test_an_audit_that_nobody_would_make_is_refused() -> None:
    async with with_web() as (ask, _, store, marks):
        await marks.set_recovery_delay(60)
        before = await marks.read_recovery_delay()
        answer = await ask("PUT", "trigger_audit")
        assert (answer.status_code, "no auditor is running" in answer.text) == (404, True)
        await elect(store, "a:1")
        await marks.disable()
        answer = await ask("PUT", "trigger_audit")
        assert (answer.status_code, "auto recovery is disabled" in answer.text) == (404, True)
        assert await marks.read_recovery_delay() == before


async def test_what_cannot_be_meant_changes_nothing() -> None:
    async with with_web() as (ask, _, _, marks):
        await marks.set_recovery_delay(60)
        for method, path, body, status in (
            ("PUT", "status", None, 400),
            ("PUT", "status?enabled=yes", None, 400),
            ("PUT", "lost_bookie_recovery_delay", None, 404),
            ("PUT", "lost_bookie_recovery_delay", [], 404),
            ("PUT", "lost_bookie_recovery_delay", {"delay_seconds": -1}, 400),
            ("PUT", "lost_bookie_recovery_delay", {"delay_seconds": DELAY_S_MAX + 1}, 400),
            ("PUT", "lost_bookie_recovery_delay", {"delay_seconds": True}, 400),
            ("PUT", "who_is_auditor", None, 404),
            ("GET", "trigger_audit", None, 404),
            ("PUT", "decommission", {"bookie_src": "a:1"}, 404),
        ):
            assert (path, (await ask(method, path, body)).status_code) == (path, status)
        assert await marks.is_enabled()
        assert await marks.recovery_delay() == 60


async def test_while_the_cluster_cannot_be_asked_the_answer_is_an_error() -> None:
    async with with_web() as (ask, _, store, _):
        store.disconnect()
        assert (await ask("GET", "status")).status_code == 500
