"""The OpenAPI document of a running server, and what Schemathesis and hostile requests find: no internal error, no
answer that the document does not have, no ERROR in the log (`standalone` looks).

`python -m tests.support.fuzzed_requests` sends a million requests.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support import openapi, web
from tests.support.certificates import Authority
from tests.support.effort import effort
from tests.support.fuzzed_paths import HOSTILE, NAMES
from tests.support.fuzzed_requests import Requests, prepare, send, served
from tests.support.server import StandaloneProcess, free_port, standalone

pytestmark = pytest.mark.real_clock

RSS_SLACK_MB = 24
"""Growth of memory that is no leak: topics and ledgers that requests made."""
PARTS = 4
"""Parts of the document, of which short runs try the first."""
VICTIMS = ("..%2fvictim", "..%2f..%2fvictim%2fn", "victim%2fn", "victim%252fn", "..%2f..%2fvictim%2fn%2ft")
"""Parts of paths that would be another tenant if they were joined or cleaned."""


class Target:
    """A server with both web ports."""

    def __init__(self, server: StandaloneProcess, tls_port: int, trust: Path) -> None:
        self.server = server
        self.tls_port = tls_port
        self.tls = ssl.create_default_context(cafile=str(trust))
        self.document = web.get(f"{server.web}/openapi.json", timeout=60).json()

    def send(self, count: int, number: int, *, tls: bool = False) -> int:
        """Send at least so many requests; return how many there were."""
        prepare(self.server.web)
        source = Requests(number, self.document)
        host, port = ("localhost", self.tls_port) if tls else ("127.0.0.1", self.server.web_port)
        return trio.run(partial(send, host, port, source, count, tls=self.tls if tls else None))["sent"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzzed")
    authority, tls_port = Authority(folder), free_port()
    pair = authority.issue("localhost")
    conf = {
        "webServicePortTls": tls_port,
        "tlsCertificateFilePath": pair.certificate,
        "tlsKeyFilePath": pair.key,
        "advertisedAddress": "localhost",
        "transactionCoordinatorEnabled": "true",
    }
    with standalone(folder, conf) as server:
        yield Target(server, tls_port, authority.trust)


@pytest.mark.parametrize("part", [0, *(pytest.param(each, marks=pytest.mark.full) for each in range(1, PARTS))])
def test_schemathesis_finds_no_internal_error_and_no_answer_that_is_not_in_the_document(
    target: Target, part: int
) -> None:
    examples = effort(quick=3, full=12)
    found = openapi.run(
        target.server.web, target.document, part=slice(part, None, PARTS), examples=examples, number=part
    )
    assert not found.failures, "\n".join(found.failures[:20])
    assert found.requests > 300 // PARTS, "each operation was asked"


def test_hostile_paths_touch_nothing_but_what_they_name(target: Target) -> None:
    """Changes with one hostile part each, past any client that would clean them up, and a tenant that none names."""
    url = target.server.web
    for path, body in (
        ("tenants/victim", {"allowedClusters": ["standalone"]}),
        ("namespaces/victim/n", {"max_producers_per_topic": 7}),
        ("persistent/victim/n/t", {"k": "v"}),
    ):
        assert web.request("PUT", f"{url}/admin/v2/{path}", json=body, timeout=60).status_code == 204
    before = _state_of_victim(url)
    found: Counter[int] = Counter()
    for number, (method, path) in enumerate(_hostile_changes(target.document)):
        if number % 500 == 0:
            prepare(url)
        # (A connection each: the server closes one on which it has not read the whole body of a request.)
        with closing(http.client.HTTPConnection("127.0.0.1", target.server.web_port, timeout=60)) as connection:
            connection.request(method, path, body=b"{}", headers={"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        found[response.status] += 1
        assert response.status < 500 or response.status in openapi.TRUTHFUL, f"{method} {path[:300]}: {text!r}"
    assert sum(found.values()) > 800, found
    assert _state_of_victim(url) == before


def _hostile_changes(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield method and path of changes: each part replaced by all hostile ones in long runs, by some in short ones."""
    step, number = effort(quick=24, full=2), 0
    for pattern, each in document["paths"].items():
        names = re.findall(r"\{(\w+)\}", pattern)
        for method in each.keys() - {"get"}:
            for changed in names:
                number += 1
                for hostile in (*HOSTILE, *VICTIMS)[number % step :: step]:
                    values = {name: NAMES.get(name, ("1",))[0] for name in names} | {changed: hostile}
                    yield method.upper(), re.sub(r"\{(\w+)\}", partial(_part, values), pattern)


def _part(values: Mapping[str, str], found: re.Match[str]) -> str:
    return values[found[1]]


def _state_of_victim(url: str) -> list[Any]:
    paths = ("tenants/victim", "namespaces/victim", "namespaces/victim/n", "persistent/victim/n")
    return [
        web.get(f"{url}/admin/v2/{path}", timeout=60).json() for path in (*paths, "persistent/victim/n/t/properties")
    ]


def test_fuzzed_requests_are_all_answered_and_leave_no_memory_behind(target: Target) -> None:
    url, server = target.server.web, target.server
    target.send(effort(quick=400, full=2000), 1)
    target.send(effort(quick=100, full=500), 2, tls=True)
    memory, before = server.rss_mb(), served(url)
    sent = target.send(effort(quick=1000, full=15_000), 3)
    assert served(url) - before >= 0.95 * sent, "the server has counted what it answered"
    before = served(url)
    sent = target.send(effort(quick=200, full=3000), 4, tls=True)
    assert served(url) - before >= 0.8 * sent, "behind the last request a client with TLS does not wait for an answer"
    assert server.rss_mb() - memory < RSS_SLACK_MB
    assert web.get(f"{url}/admin/v2/brokers/health", timeout=60).text == "ok"
