"""The web port of the suite's cluster follows redirects of brokers, and changes nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support import web
from tools.official_suite.front import REDIRECTS_MAX, front

Request = tuple[str, str, str | None, bytes]


class Broker(ThreadingHTTPServer):
    """Server that keeps the requests it gets. It redirects them if it has the address of an owner."""

    owner: str | None = None
    status = 204
    text = b""

    def __init__(self) -> None:
        self.got: list[Request] = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Broker

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append((self.command, self.path, self.headers.get("Content-Type"), body))
        self.send_response(307 if self.server.owner else self.server.status)
        if self.server.owner:
            self.send_header("Location", f"{self.server.owner}{self.path}")
        else:
            self.send_header("X-Broker", "owner")
        self.send_header("Content-Length", str(len(self.server.text)))
        self.end_headers()
        self.wfile.write(self.server.text)

    do_GET = do_PUT = do_POST = do_DELETE = _take  # noqa: N815 (names of http.server)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    """The broker behind the front, and another one."""
    with Broker() as first, Broker() as second:
        threads = [threading.Thread(target=each.serve_forever) for each in (first, second)]
        for thread in threads:
            thread.start()
        yield first, second
        for each, thread in zip((first, second), threads, strict=True):
            each.shutdown()
            thread.join()


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_a_redirect_is_followed_with_method_path_and_body(brokers: tuple[Broker, Broker], method: str) -> None:
    first, second = brokers
    first.owner = second.url
    headers = {"Content-Type": "application/json"}
    body = None if method in ("GET", "DELETE") else b'{"a": 1}'
    with front(0, first.url) as port:
        answer = web.request(
            method, f"http://127.0.0.1:{port}/admin/v2/a%2Fb?x=1&y=", headers=headers, content=body, timeout=20
        )
    assert (answer.status_code, answer.headers["X-Broker"]) == (204, "owner")
    assert first.got == second.got == [(method, "/admin/v2/a%2Fb?x=1&y=", "application/json", body or b"")]


def test_any_other_answer_is_passed_on(brokers: tuple[Broker, Broker]) -> None:
    first, second = brokers
    first.status, first.text = 409, b'{"reason": "there already"}'
    with front(0, first.url) as port:
        answer = web.request("PUT", f"http://127.0.0.1:{port}/admin/v2/x", timeout=20)
    assert (answer.status_code, answer.content) == (409, first.text)
    assert second.got == []


def test_brokers_that_name_each_other_are_an_error(brokers: tuple[Broker, Broker]) -> None:
    first, second = brokers
    first.owner, second.owner = second.url, first.url
    with front(0, first.url) as port:
        answer = web.request("GET", f"http://127.0.0.1:{port}/admin/v2/x", timeout=20)
    assert (answer.status_code, len(first.got) + len(second.got)) == (502, REDIRECTS_MAX + 1)


def test_a_broker_that_is_away_is_an_error() -> None:
    with Broker() as gone:
        url = gone.url
    with front(0, url) as port:
        assert web.request("GET", f"http://127.0.0.1:{port}/admin/v2/x", timeout=20).status_code == 502
