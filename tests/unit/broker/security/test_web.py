"""Authentication of requests (web.py, quire/servers/broker/security.py), through the real app and its resources."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from broker.admin.requests import AdminCall
from broker.neighbours.neighbours import Neighbours
from broker.neighbours.shares import ShareLimits
from broker.publish_budget import PublishBudget
from broker.security.authentication.config import AuthenticationOptions
from broker.security.metrics import register_authentication
from quire.servers.broker.security import middleware_of
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from quire.service.neighbours.rare_lines import RareLines
from quire.service.routes import route
from tests.support.credentials import authentication, token
from tests.support.waiting import until
from tests.unit.managed_ledger.fake_ledgers import fake_world

BEARER = {"Authorization": f"Bearer {token()}"}
BASIC = {"Authorization": "Basic " + base64.b64encode(b"admin:123456").decode()}


@asynccontextmanager
async def web(
    *, enabled: bool = True, metrics_too: bool = False, neighbours: Neighbours | None = None, **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    held = trio.Event()

    async def hold(request: Request) -> Response:
        await held.wait()
        return PlainTextResponse("held")

    async def release(request: Request) -> Response:
        held.set()
        return PlainTextResponse("released")

    async def whoami(request: Request) -> Response:
        call = AdminCall(service=None, request=request, parts={})  # type: ignore[arg-type]
        return PlainTextResponse(str(call.principal))

    checks = authentication(**options) if enabled else None
    metrics = Metrics()
    if checks is not None:
        register_authentication(metrics, checks)
    given = AuthenticationOptions(enabled=enabled, authenticate_metrics=metrics_too)
    app = make_app(
        metrics,
        Health(is_ready=lambda: True, check=trio.lowlevel.checkpoint),
        [
            route("/admin/v2/whoami", GET=whoami),
            route("/admin/v2/hold", GET=hold),
            route("/admin/v2/release", GET=release),
            route("/admin/v2/persistent/t/n/{topic}", PUT=whoami),
        ],
        middleware_of(checks, given, fake_world().clock, RareLines(), neighbours),
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://quire") as client:
        yield client


async def test_a_request_with_credentials_has_their_role() -> None:
    async with web(proxy_roles=("proxy",)) as client:
        for headers, role in (
            (BEARER, "Principal(role='alice', original=None)"),
            (BASIC, "Principal(role='admin', original=None)"),
            (
                {"Authorization": f"Bearer {token('proxy')}", "X-Original-Principal": "bob"},
                "Principal(role='proxy', original='bob')",
            ),
        ):
            answer = await client.get("/admin/v2/whoami", headers=headers)
            assert (answer.status_code, answer.text) == (200, role)


@pytest.mark.parametrize(
    "path",
    ["/admin/v2/whoami", "/admin/v2/nothing", "/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/quire/loggers"],
)
async def test_a_request_without_credentials_is_refused_wherever_it_goes(path: str) -> None:
    async with web() as client:
        for headers in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": f"Bearer {token(key=bytes(64))}"},
            {**BASIC, "X-Pulsar-Auth-Method-Name": "token"},
            {**BEARER, "X-Original-Principal": "admin"},
        ):
            for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
                answer = await client.request(method, path, headers=headers)
                assert answer.status_code == 401, (method, headers)
        assert (await client.get(path)).json() == {"reason": "Authentication required"}


async def test_a_token_in_a_query_counts_for_nothing_and_is_not_logged(log_events: list[dict[str, Any]]) -> None:
    async with web() as client:
        for name in ("token", "access_token", "Authorization", "authorization"):
            answer = await client.get("/admin/v2/whoami", params={name: token()})
            assert answer.status_code == 401
            assert token() not in answer.text
            assert (await client.get("/no/such", params={name: token()}, headers=BEARER)).status_code == 404
    assert log_events
    assert token() not in repr(log_events)


async def test_load_balancers_and_metrics_need_no_credentials_unless_configured() -> None:
    async with web() as client:
        assert (await client.get("/status.html")).text == "OK"
        await client.get("/admin/v2/whoami", headers={"Authorization": f"Bearer {token(exp=1)}"})
        await client.get("/admin/v2/whoami", headers=BASIC)
        text = (await client.get("/metrics")).text
        right = 'auth_method="basic",provider_name="AuthenticationProviderBasic"'
        assert f"pulsar_authentication_success_total{{{right}}} 1.0" in text
        wrong = 'auth_method="token",provider_name="AuthenticationProviderToken",reason="EXPIRED_TOKEN"'
        assert f"pulsar_authentication_failures_total{{{wrong}}} 1.0" in text
        assert "pulsar_expired_token_total 1.0" in text
        assert token(exp=1) not in text
    async with web(metrics_too=True) as client:
        assert (await client.get("/status.html")).status_code == 200
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=BEARER)).status_code == 200


async def test_without_authentication_requests_have_no_roles() -> None:
    async with web(enabled=False) as client:
        answer = await client.get("/admin/v2/whoami", headers={"Authorization": "Bearer x"})
        assert (answer.status_code, answer.text) == (200, "None")


async def test_requests_and_topics_of_a_role_above_its_limits_are_answered_429() -> None:
    limits = ShareLimits("role", requests=2, topics=1)
    neighbours = Neighbours(limits, ShareLimits("address"), PublishBudget(100), exempt=("root",))
    root = {"Authorization": f"Bearer {token('root')}"}
    async with web(neighbours=neighbours) as client, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(partial(client.get, "/admin/v2/hold", headers=BEARER))
        await trio.testing.wait_all_tasks_blocked()
        refused = await client.get("/admin/v2/whoami", headers=BEARER)
        assert (refused.status_code, "too many requests" in refused.text) == (429, True)
        assert (await client.get("/admin/v2/whoami", headers=BASIC)).status_code == 200
        assert (await client.get("/admin/v2/release", headers=root)).status_code == 200
        await until(lambda: neighbours._roles.of("alice").requests == 0)
        put = partial(client.put, headers=BEARER)
        assert (await put("/admin/v2/persistent/t/n/one")).status_code == 200
        assert (await put("/admin/v2/persistent/t/n/two")).status_code == 429
        assert (await client.get("/admin/v2/whoami", headers=BEARER)).status_code == 200
