"""quire.service.http, over real sockets on this machine."""

from __future__ import annotations

import itertools
import json
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from unittest.mock import patch

import httpx2
import pytest
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quire.service import http
from quire.service.http import Health, make_app, serve_web
from quire.service.log import captured
from quire.service.metrics import Metrics
from quire.service.routes import route
from quire.service.serve import ConnectionCounts, serve_connections
from quire.world.doors import Stream
from quire.world.real_network import RealNetwork, descriptors_kept
from tests.support.waiting import until


async def well() -> None: ...


async def ill() -> None:
    raise RuntimeError("no bookie")


def ask(
    path: str, *, ready: bool = True, check: Callable[[], Awaitable[None]] = well, method: str = "GET"
) -> httpx2.Response:
    """Return the answer of a server to one request."""

    async def main() -> httpx2.Response:
        metrics = Metrics()
        metrics.gauge("pulsar_health", "", lambda: 1)
        app = make_app(metrics, Health(is_ready=lambda: ready, check=check))
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(partial(serve_web, app, "127.0.0.1", 0, stop=stop))
            async with httpx2.AsyncClient(base_url=f"http://{host}:{port}") as client:
                response = await client.request(method, path)
            stop.set()
        return response

    return trio.run(main)


def test_status_is_ok_for_load_balancers() -> None:
    response = ask("/status.html")
    assert (response.status_code, response.text) == (200, "OK")


def test_status_and_readiness_fail_while_the_server_is_not_ready() -> None:
    assert ask("/status.html", ready=False).status_code == 503
    assert ask("/admin/v2/brokers/ready", ready=False).status_code == 503


def test_readiness_and_health_answer_ok() -> None:
    assert ask("/admin/v2/brokers/ready").text == "ok"
    assert ask("/admin/v2/brokers/health").text == "ok"


def test_a_failed_health_check_says_why() -> None:
    response = ask("/admin/v2/brokers/health", check=ill)
    assert (response.status_code, json.loads(response.text)) == (500, {"reason": "no bookie"})


def test_metrics_are_prometheus_text() -> None:
    response = ask("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "pulsar_health 1.0" in response.text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/metrics", 405)])
def test_what_is_not_there_is_refused_as_the_admin_api_does(method: str, path: str, status: int) -> None:
    response = ask(path, method=method)
    assert response.status_code == status
    assert path in json.loads(response.text)["reason"]


@pytest.mark.real_clock
async def test_a_taken_port_is_an_error_at_once() -> None:
    async def main() -> None:
        app = make_app(Metrics(), Health(is_ready=lambda: True, check=well))
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(partial(serve_web, app, "127.0.0.1", 0))
            with trio.fail_after(5):
                await serve_web(app, host, port)

    with pytest.raises(ExceptionGroup) as caught:
        await main()
    assert caught.group_contains(OSError, match="in use")


def few_descriptors(left: int) -> int:
    """Lower the limit of this process so that connections may have `left` more; return the limit before."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    limit = next(each for each in itertools.count(lowest) if each - descriptors_kept(each) == lowest + left)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return before


@pytest.mark.real_clock
async def test_connections_leave_descriptors_for_files_whatever_port_they_come_to() -> None:
    """They wait in the queue of the port, with one line in the log when that begins and one when it is over."""
    began, over = "accepting no connections until descriptors are free", "accepting connections again"

    def told(event: str) -> set[object]:
        return {line.get("server") for line in lines if line["event"] == event}

    async def main() -> None:
        app = make_app(Metrics(), Health(is_ready=lambda: True, check=well))
        stop, counts = trio.Event(), ConnectionCounts()

        async def idle(stream: Stream) -> None:
            await stream.receive_into(memoryview(bytearray(1)))

        with ExitStack() as stack:
            async with trio.open_nursery() as nursery:
                _, port = await nursery.start(partial(serve_web, app, "127.0.0.1", 0, stop=stop))
                listener = await RealNetwork().listen("127.0.0.1", 0)
                binary = partial(serve_connections, listener, idle, stop=stop, grace_s=0, counts=counts)
                await nursery.start(binary)
                clients = [socket.socket() for _ in range(40)]
                for client in clients:
                    stack.enter_context(client)
                before = few_descriptors(8)
                stack.callback(set_limit, before)
                for number, client in enumerate(clients):
                    client.connect(("127.0.0.1", port if number < 20 else listener.address[1]))
                await until(lambda: told(began) == {"http", "server"}, "both ports accept no more")
                with ExitStack() as files:
                    for _ in range(descriptors_kept(64)):
                        files.callback(os.close, os.dup(0))
                for client in clients[:39]:
                    client.close()
                await until(lambda: told(over) == {"http", "server"}, "both ports accept again")
                await until(lambda: counts.active == 1, "the connection that is left is served")
                stop.set()

    with captured() as lines, patch("quire.service.serve.ACCEPT_QUIET_S", 0.2):
        await main()
    for server in ("http", "server"):
        assert [line["event"] for line in lines if line.get("server") == server] == [began, over]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


def set_limit(soft: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


async def served(nursery: trio.Nursery, *routes: Route) -> tuple[str, int]:
    """Serve a web port with these routes; return its address."""
    app = make_app(Metrics(), Health(is_ready=lambda: True, check=well), routes)
    address: tuple[str, int] = await nursery.start(partial(serve_web, app, "127.0.0.1", 0))
    return address


@pytest.mark.real_clock
async def test_headers_that_never_end_end_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not extend the time."""
    monkeypatch.setattr(http, "IDLE_S", 0.5)
    async with trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream(*await served(nursery))
        await stream.send_all(b"GET /status.html HTTP/1.1\r\n")
        begun = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):  # noqa: PT012
            while trio.current_time() - begun < 10:
                await stream.send_all(b"X-Slow: 1\r\n")
                await trio.sleep(0.1)
        assert trio.current_time() - begun < 5
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.real_clock
async def test_a_client_that_does_not_take_its_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SEND_S", 0.3)
    size = 64 << 20

    async def large(request: Request) -> Response:
        return Response(bytes(size))

    async with trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream(*await served(nursery, route("/large", GET=large)))
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await trio.sleep(1.5)
        received = 0
        with suppress(trio.BrokenResourceError), trio.fail_after(10):
            while part := await stream.receive_some(1 << 20):
                received += len(part)
        assert 0 < received < size, "the rest was not waited for"
        await stream.aclose()
        nursery.cancel_scope.cancel()
