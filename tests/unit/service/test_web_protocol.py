"""quire.service.web.protocol, over real sockets on this machine: what clients send below HTTP."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import h11
import pytest
import trio
from starlette.requests import Request
from starlette.responses import Response

from quire.service.http import Health, make_app, serve_web
from quire.service.metrics import Metrics
from quire.service.routes import route
from quire.service.web.protocol import Http1, WebConnection
from tests.support.waiting import until

pytestmark = pytest.mark.real_clock

GET = b"GET /status.html HTTP/1.1\r\nHost: x\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"


async def long(request: Request) -> Response:
    return Response(b"x" * 1_000_000)


@asynccontextmanager
async def a_port() -> AsyncIterator[tuple[int, Metrics]]:
    metrics = Metrics()
    app = make_app(metrics, Health(is_ready=lambda: True, check=trio.lowlevel.checkpoint), [route("/long", GET=long)])
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(partial(serve_web, app, "127.0.0.1", 0))
        yield port, metrics
        nursery.cancel_scope.cancel()


async def sent(port: int, data: bytes) -> bytes:
    """Send bytes, and return all that comes until the server closes the connection."""
    received = b""
    with trio.fail_after(10):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            with suppress(trio.BrokenResourceError):  # the server has closed it with something not read
                await stream.send_all(data)
                await stream.send_eof()
                while chunk := await stream.receive_some():
                    received += chunk
    return received


@pytest.mark.parametrize(
    "headers",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Version: 13\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    ],
)
async def test_a_request_for_another_protocol_is_answered_in_this_one(headers: bytes) -> None:
    async with a_port() as (port, _):
        answered = await sent(port, GET + headers + b"\r\n")
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert answered.endswith(b"OK")


async def test_a_client_that_begins_with_http_2_is_refused() -> None:
    async with a_port() as (port, _):
        answered = await sent(port, PREFACE)
    assert answered.startswith(b"HTTP/1.1 4")


async def test_what_follows_the_last_request_of_a_connection_is_no_error_of_ours() -> None:
    """The answer is written while the connection is closed for what its client sends behind the request."""
    async with a_port() as (port, _):
        for _ in range(30):
            await sent(port, b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + b"x" * 70_000)
        assert (await sent(port, GET + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_answers_are_counted_those_of_the_parser_too() -> None:
    async with a_port() as (port, metrics):
        await sent(port, GET + b"\r\n" + GET + b"\r\n" + b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        await sent(port, b"no request\r\n\r\n")
        lines = [line.strip() for line in metrics.lines() if line and line.startswith("quire_web_answers_total{")]
    assert lines == [
        'quire_web_answers_total{status="2xx"} 2.0',
        'quire_web_answers_total{status="3xx"} 0.0',
        'quire_web_answers_total{status="4xx"} 2.0',
        'quire_web_answers_total{status="5xx"} 0.0',
    ]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("breaks", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(GET + b"\r\n", id="a request"),
        pytest.param(GET + b"\r\n" + GET, id="a request and a half"),
        pytest.param(b"G\0T / HTTP/1.1\r\n\r\n", id="no request"),
        pytest.param(GET + b"\r\n" + b"\0\r\n\r\n", id="no request behind a request"),
        pytest.param(GET + b"Content-Length: 10\r\n\r\n", id="no body"),
        pytest.param(GET + b"Transfer-Encoding: chunked\r\n\r\nz", id="no chunk"),
        pytest.param(GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", id="another protocol"),
    ],
)
async def test_an_ended_connection_is_freed_at_once(data: bytes, breaks: bool) -> None:
    """The collector of a server looks at old objects rarely."""
    async with a_port() as (port, _):
        with trio.fail_after(10):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(data)
            if data:
                await stream.receive_some()
            if breaks:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.aclose()
        await until(lambda: not kept(), within=10)


def kept() -> list[str]:
    """Return the types of the objects of connections that there are."""
    return [
        type(each).__name__
        for each in gc.get_objects()
        if isinstance(each, (WebConnection, Http1, h11.RemoteProtocolError))
    ]
