"""Each call of the web port as each role: permitted or refused as testdata/calls.txt says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio

from broker.admin import resource
from broker.admin.permissions.access import checked_route
from broker.admin.requests import AdminCall
from broker.security.authorization import routes
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.permissions import Permission
from broker.security.authorization.routes import BY_BODY, ROUTES, CallKind, Route
from tests.support.datadriven import Line, check, read
from tests.unit.broker.admin.cluster_fakes import ClusterRest
from tests.unit.broker.security.roles import OPTIONS, ROLES, principal, store_roles

TABLE = Path(__file__).parent / "testdata" / "calls.txt"
VALUES = {
    "tenant": "public",
    "namespace": "default",
    "topic": "a",
    "domain": "persistent",
    "subscription": "s",
    "role": "app",
    "name": "broker.dispatch",
}
"""Parameters of paths; any other is 1."""
BODIES: dict[str, Any] = {
    name: [{"topic": "persistent://public/default/a", "role": "app", "actions": ["produce"]}] for name in BY_BODY
}


DONE: list[str] = []
"""Methods of the handled calls."""


async def do_nothing(call: AdminCall) -> None:
    """Handle a call by noting it; all calls but those that check by themselves."""
    DONE.append(call.request.method)


@asynccontextmanager
async def a_web_port() -> AsyncIterator[ClusterRest]:
    """Serve all routes, with authorization, over handlers that do nothing."""
    rest = ClusterRest()
    await store_roles(rest.store)
    authorizer = rest.service.authorizer = Authorizer(rest.store, OPTIONS)
    rest.check = partial(checked_route, authorizer)
    async with trio.open_nursery() as nursery:
        await nursery.start(authorizer.run)
        async with rest.served():
            yield rest
        nursery.cancel_scope.cancel()


@pytest.fixture
def handlers_that_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = resource.Resource.__init__

    def make(self: resource.Resource, pattern: str, *args: Any, **handlers: Any) -> None:
        if pattern.rpartition("/")[2] not in BY_BODY:
            handlers |= {method: do_nothing for method in handlers if method.isupper()}
        made(self, pattern, *args, **handlers)

    monkeypatch.setattr(resource.Resource, "__init__", make)


pytestmark = pytest.mark.usefixtures("handlers_that_do_nothing")


async def answers(rest: ClusterRest, method: str, pattern: str) -> list[str]:
    """Return the answer to each role: `ok`, or the status of the refusal."""
    path = re.sub(r"\{(\w+)\}", lambda found: VALUES.get(found[1], "1"), pattern)
    body = BODIES.get(pattern.rpartition("/")[2])
    found: list[str] = []
    for role in ROLES:
        rest.principal = principal(role)
        response = await rest.ask(method, f"{path}?tenant=public", json=body)
        refused = response.status_code in (401, 403)
        assert refused or response.status_code in (200, 204, 400, 412), f"{method} {path}: {response.text}"
        found.append(str(response.status_code) if refused else "ok")
    return found


def grouped(found: Iterable[tuple[tuple[str, str], list[str]]]) -> list[str]:
    """Return the calls by their answers, as the table has them."""
    groups: dict[str, dict[str, list[str]]] = {}
    for (method, pattern), each in found:
        groups.setdefault(" ".join(f"{answer:>9}" for answer in each), {}).setdefault(pattern, []).append(method)
    lines = [" ".join(f"{role:>9}" for role in ROLES)]
    for key in sorted(groups):
        lines.append(key)
        lines += [f"    {','.join(sorted(methods))} {path}" for path, methods in sorted(groups[key].items())]
    return lines


async def test_each_call_is_permitted_to_the_roles_of_the_table() -> None:
    async with a_web_port() as rest:
        lines = grouped([(key, await answers(rest, *key)) for key in ROUTES])

    def calls(command: Line, steps: object) -> list[str]:
        assert command.name == "calls"
        return lines

    check(TABLE, calls)


def expected(method: str, pattern: str) -> list[str]:
    """Return the answers that the table has for a call."""
    [case] = read(TABLE)
    current: list[str] = []
    for line in case.expected[1:]:
        words = line.split()
        if "/" not in words[-1]:
            current = words
        elif words[1] == pattern and method in words[0].split(","):
            return current
    raise AssertionError(f"the table has no {method} {pattern}")


FLIPS = [
    ("PUT", "/admin/v2/tenants/{tenant}", Permission.TENANT_ADMIN, CallKind.TENANT),
    ("GET", "/admin/v2/tenants/{tenant}", Permission.SUPER_USER, CallKind.TENANT),
    ("POST", "/admin/v2/namespaces/{tenant}/{namespace}/permissions/{role}", Permission.LOOKUP_NAMESPACE, None),
    ("GET", "/admin/v2/persistent/{tenant}/{namespace}", Permission.CONSUME_NAMESPACE, None),
    ("GET", "/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats", Permission.PRODUCE, None),
    ("DELETE", "/admin/v2/persistent/{tenant}/{namespace}/{topic}", Permission.PRODUCE, None),
    ("POST", "/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema", Permission.LOOKUP, None),
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", Permission.ANY_ROLE, None),
    ("GET", "/admin/v2/brokers/health", Permission.NOTHING, None),
    ("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", Permission.ANY_ROLE, None),
    ("GET", "/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats", Permission.LOOKUP, CallKind.POLICY),
]


@pytest.mark.parametrize(("method", "pattern", "permission", "kind"), FLIPS)
async def test_a_flip_of_the_table_is_caught(
    method: str, pattern: str, permission: Permission, kind: CallKind | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROUTES[method, pattern]
    flipped = Route(permission, row.kind if kind is None else kind)
    assert flipped != row
    async with a_web_port() as rest:
        assert await answers(rest, method, pattern) == expected(method, pattern)
        monkeypatch.setattr(routes, "ROUTES", MappingProxyType({**ROUTES, (method, pattern): flipped}))
        assert await answers(rest, method, pattern) != expected(method, pattern)


async def test_a_call_without_a_row_is_refused_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("GET", "/admin/v2/tenants")
    monkeypatch.setattr(routes, "ROUTES", MappingProxyType({each: row for each, row in ROUTES.items() if each != key}))
    async with a_web_port() as rest:
        assert await answers(rest, *key) == ["403"] * len(ROLES)


async def test_missing_and_forbidden_look_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a tenant, a namespace or a topic that does not exist, each with the status of its call."""
    async with a_web_port() as rest:
        for key, row in ROUTES.items():
            if row.permission in (Permission.NOTHING, Permission.ANY_ROLE) or key[1].rpartition("/")[2] in BY_BODY:
                continue
            rest.principal = principal("stranger")
            texts = set()
            for tenant, namespace in (("public", "default"), ("public", "none"), ("none", "none")):
                values = {**VALUES, "tenant": tenant, "namespace": namespace}
                path = re.sub(r"\{(\w+)\}", lambda found, values=values: values.get(found[1], "1"), key[1])  # type: ignore[misc]
                response = await rest.ask(key[0], path)
                text = response.text.replace(f"{tenant}/{namespace}", "T/N").replace(f"({tenant})", "(T)")
                texts.add((response.status_code, text))
            assert len(texts) == 1, (key, texts)
            [(status, _)] = texts
            assert status in (401, 403)


async def test_while_the_metadata_service_is_away_nothing_unknown_is_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_web_port() as rest:
        rest.principal = principal("consumer")
        pattern = "/admin/v2/persistent/public/{}/a/stats"
        assert await rest.status("GET", pattern.format("default")) == 200
        rest.store.disconnect()
        assert await rest.status("GET", pattern.format("default")) == 200, "it is known in memory"
        assert await rest.status("GET", pattern.format("other")) == 503
        rest.principal = principal("super")
        assert await rest.status("GET", pattern.format("other")) == 200, "a super user needs no facts"
        rest.store.reconnect()
        rest.principal = principal("consumer")
        assert await rest.status("GET", pattern.format("other")) == 401


async def test_nothing_of_a_refused_call_is_done() -> None:
    async with a_web_port() as rest:
        DONE.clear()
        rest.principal = principal("admin")
        assert await rest.status("PUT", "/admin/v2/tenants/new") == 401
        assert DONE == []
        rest.principal = principal("super")
        assert await rest.status("PUT", "/admin/v2/tenants/new") == 204
        assert DONE == ["PUT"]
