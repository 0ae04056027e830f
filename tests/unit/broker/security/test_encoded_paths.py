"""Every path of the web port with hostile parts: what permission is decided on is what the handler works on.

The requests go to the site as hypercorn hands them over, so that no client cleans them up. Handlers note the names that
they would work on, and the authorizer notes what it was asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest

from broker.admin import resource
from broker.admin.raw_paths import raw_path, unescape
from broker.admin.requests import AdminCall
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.decisions import Decision
from broker.security.authorization.permissions import Need, Permission
from broker.security.authorization.routes import BY_BODY, ROUTES
from broker.security.principal import Principal
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from tests.support.effort import effort
from tests.support.fuzzed_paths import HOSTILE
from tests.unit.broker.admin.cluster_fakes import ClusterRest
from tests.unit.broker.security.roles import OPTIONS, principal

ROOT = Path(__file__).resolve().parents[4]
VALUES = {"tenant": "t", "namespace": "n", "topic": "a", "subscription": "s", "domain": "persistent"}
"""Parts of paths; any other is 1."""
SPELLINGS = (
    "%74",
    "%6E",
    "%61",
    "%73",
    "%31",
    "%70ersistent",
    "t",
    "n",
    "..%2ft",
    "t%2f..%2fn",
    "a/../b",
    "a//b",
    "./a",
)
"""Other spellings of these parts, and more parts than one."""
REFUSED = (400, 404, 405, 412, 501)


class Seen(NamedTuple):
    """Names that a handler would work on; "" for a part that its path does not have."""

    method: str
    pattern: str
    tenant: str
    namespace: str
    topic: str
    subscription: str


SEEN: list[Seen] = []
NEEDS: list[Need] = []


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the site, with handlers and an authorizer that note what they are given."""
    made = resource.Resource.__init__

    def noting(pattern: str) -> resource.Handler:
        async def handle(call: AdminCall) -> None:
            has_topic, has_namespace = "topic" in call.parts, "namespace" in call.parts
            SEEN.append(
                Seen(
                    call.request.method,
                    pattern,
                    call.tenant() if "tenant" in call.parts else "",
                    str(call.namespace()) if has_namespace else "",
                    call.topic().full if has_topic else "",
                    call.subscription() if "subscription" in call.parts else "",
                )
            )

        return handle

    def make(self: resource.Resource, pattern: str, *args: Any, **handlers: Any) -> None:
        handlers |= {method: noting(pattern) for method in handlers if method.isupper()}
        made(self, pattern, *args, **handlers)

    async def decide(self: Authorizer, principal: Principal | None, need: Need, user: object = None) -> Decision:
        NEEDS.append(need)
        return Decision(True, "")

    monkeypatch.setattr(resource.Resource, "__init__", make)
    monkeypatch.setattr(Authorizer, "decide", decide)
    rest = ClusterRest()
    rest.service.authorizer = Authorizer(rest.store, OPTIONS)
    from broker.admin.resources import routes

    async def check() -> None: ...

    return make_app(Metrics(), Health(is_ready=lambda: True, check=check), routes(rest.service))


async def ask(site: Any, method: str, path: str) -> int:
    """Return the status of the answer to a request as hypercorn hands it over."""
    started: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: Any) -> None:
        if event["type"] == "http.response.start":
            started.append(event["status"])

    raw = path.encode("latin-1")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": raw,
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"x")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "principal": principal("super"),
    }
    await site(scope, receive, send)
    [status] = started
    return status


def hostile_paths() -> Iterator[tuple[str, str, str]]:
    """Yield method, pattern and path: of each call, with each of its parts replaced by hostile ones: by all in long
    runs, by every fortieth in short ones, so that each part is asked, and each hostile one in many calls."""
    step, number = effort(quick=40, full=1), 0
    for method, pattern in ROUTES:
        names = re.findall(r"\{(\w+)\}", pattern)
        for changed in names:
            number += 1
            for hostile in (*HOSTILE, *SPELLINGS)[number % step :: step]:
                values = {name: VALUES.get(name, "1") for name in names} | {changed: hostile}
                yield method, pattern, re.sub(r"\{(\w+)\}", partial(_part, values), pattern)


def _part(values: Mapping[str, str], found: re.Match[str]) -> str:
    return values[found[1]]


def check_literal(seen: Seen, path: str) -> None:
    """Check that a path was matched as it came: nothing is taken out of it, joined or unescaped before."""
    parts, literal = path.split("/"), seen.pattern.split("/")
    assert len(parts) == len(literal), f"{path} was served as {seen.pattern}"
    for part, name in zip(parts, literal, strict=True):
        assert part == name or name.startswith("{"), f"{path} was served as {seen.pattern}"
        if name == "{topic}":
            assert seen.topic.endswith(f"/{unescape(part)}"), path


async def test_a_permission_is_decided_on_the_names_that_the_handler_uses(site: Any) -> None:
    count = 0
    for method, pattern, path in hostile_paths():
        SEEN.clear()
        NEEDS.clear()
        status = await ask(site, method, path)
        count += 1
        shown = f"{method} {pattern} as {path[:200]}: {status} {SEEN} {NEEDS}"
        assert status in (*REFUSED, 200, 204, 307), shown
        if not SEEN:
            continue
        [seen] = SEEN
        check_literal(seen, path)
        row = ROUTES[seen.method, seen.pattern]
        if row.permission in (Permission.NOTHING, Permission.ANY_ROLE) or seen.pattern.rpartition("/")[2] in BY_BODY:
            continue
        [need] = NEEDS
        assert need.permission is row.permission, shown
        if seen.topic:
            assert need.topic is not None, shown
            assert need.topic.full == seen.topic, shown
        if seen.namespace:
            assert need.namespace == seen.namespace, shown
        assert need.tenant == seen.tenant or row.permission is Permission.SUPER_USER, shown
        if row.permission is Permission.CONSUME:
            assert need.subscription == seen.subscription, shown
    assert count > 1_500, "each call was asked"


def test_nothing_but_the_call_reads_the_path() -> None:
    """Names that a handler took from the path by itself could be others than those that were permitted."""
    readers = {
        str(path.relative_to(ROOT)): sorted(set(found))
        for folder in ("broker/admin", "broker/explain")
        for path in (ROOT / folder).rglob("*.py")
        if (found := re.findall(r"raw_path\(|path_params|url\.path|scope\[\"path\"\]", path.read_text()))
    }
    assert readers == {
        "broker/admin/positions/every.py": ["raw_path("],  # the same request, to the owners of partitions
        "broker/admin/raw_paths.py": ["raw_path(", 'scope["path"]'],
        "broker/admin/redirects.py": ["raw_path("],
        "broker/admin/requests.py": ["raw_path("],
        "broker/admin/resource.py": ["path_params", "raw_path(", "url.path"],
    }
    assert raw_path({"raw_path": b"/a%2F", "path": "/a/"}) == "/a%2F"
