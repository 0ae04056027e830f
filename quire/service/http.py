"""The web port: liveness, health and metrics, where Pulsar has them. A server adds its own routes (the admin REST).

    GET /status.html                for load balancers: "OK" while the server serves, "READ ONLY: why" while its disk is
                                    full, both 200, as it goes on serving reads and acknowledgements; else 503
    GET /admin/v2/brokers/ready     "ok" when everything is up; 503
    GET /admin/v2/brokers/health    "ok" after a real check (`Health.check`); 500 with the reason. ?brokerId=: of that
                                    broker, to which 307 leads; 404: there is none of this id
    GET /metrics                    text for Prometheus

Import this module after the binary port is served: it brings Starlette and hypercorn with it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.logging import Logger as HypercornLogger
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from quire.service.latest.routes import warning_routes
from quire.service.log import get_logger
from quire.service.log_routes import log_routes
from quire.service.measuring.scrapes import ScrapeRefusedError, Scrapes
from quire.service.metrics import CONTENT_TYPE, Metrics
from quire.service.routes import Check, guarded, original_route, route
from quire.service.serve import ConnectionCounts, serve_connections
from quire.service.web.parameters import Parameter
from quire.service.web.protocol import Answers, WebConnection
from quire.world.real_network import RealNetwork, check_descriptors

if TYPE_CHECKING:
    from quire.service.https import TlsConnection, TlsListener
    from quire.world.tls_sides import ServerTls

HEALTH_CHECK_S = 60.0
"""Deadline of a health check, in seconds."""
GRACE_S = 2.0
"""Time for requests in flight when the server stops, in seconds."""
IDLE_S = 5.0
"""Time from the begin of a connection, or from the last answer, to the end of the headers of a request, in seconds:
bytes that complete none do not extend it."""
SEND_S = 60.0
"""Time for a client to take a part of an answer, in seconds."""
CONNECTIONS_MAX = 2048
"""Maximum connections of one web port. Source: maxHttpServerConnections."""
BROKER_ID = Parameter("brokerId", "Broker that is checked, as host:port of its web port; without it, this one.")
SHOWN_MAX = 100
"""Characters of an id shown in an answer."""

log = get_logger(__name__)


async def _no_other(request: Request, broker_id: str) -> Response | None:
    return _reason(404, f"there is no broker {broker_id[:SHOWN_MAX]!a}")


@dataclass(frozen=True, slots=True)
class Health:
    """Readiness and health checks of a server."""

    is_ready: Callable[[], bool]
    check: Callable[[], Awaitable[None]]
    """Does the work of the server once, end to end; raises on failure."""
    no_room: Callable[[], str] = str
    """Reason why the server accepts nothing new, "" otherwise. It still serves its data, so it counts as ready."""
    elsewhere: Callable[[Request, str], Awaitable[Response | None]] = _no_other
    """Returns the answer to a request for the health of a broker, by its id; None: it is this one."""


def make_app(
    metrics: Metrics,
    health: Health,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
    *,
    guard: Callable[[str], Check] | None = None,
) -> Starlette:
    """Return a site of a process with a broker: the resources above, and behind them `routes`.

    Args:
        middleware: what every request passes.
        guard: returns the check of requests to a path; None: the health check and the levels of loggers are open.
    """

    async def status(request: Request) -> PlainTextResponse:
        """Return whether the server serves, for load balancers."""
        if not health.is_ready():
            return PlainTextResponse("NOT READY", status_code=503)
        reason = health.no_room()
        return PlainTextResponse(f"READ ONLY: {reason}" if reason else "OK")

    async def ready(request: Request) -> PlainTextResponse | JSONResponse:
        """Return whether everything is up."""
        return PlainTextResponse("ok") if health.is_ready() else _reason(503, "the server is not ready")

    async def check(request: Request) -> Response:
        """Do the work of the server once, end to end."""
        broker_id = (BROKER_ID.text(request.query_params) or "").strip()
        try:
            with trio.fail_after(HEALTH_CHECK_S):
                elsewhere = await health.elsewhere(request, broker_id) if broker_id else None
                if elsewhere is not None:
                    return elsewhere
                await health.check()
        except trio.TooSlowError:
            return _reason(500, f"the health check took longer than {HEALTH_CHECK_S:g} s")
        except Exception as error:
            log.warning("health check failed", reason=repr(error))
            return _reason(500, str(error) or type(error).__name__)
        return PlainTextResponse("ok")

    answers = Answers()
    register_answers(metrics, answers)
    app = Starlette(
        routes=[
            route("/status.html", {"GET": (503,)}, GET=status),
            route("/admin/v2/brokers/ready", {"GET": (503,)}, GET=ready),
            route(
                "/admin/v2/brokers/health",
                {"GET": (307, 404, 500, 503)},
                GET=guarded("/admin/v2/brokers/health", check, guard),
            ),
            route("/metrics", GET=partial(_scrape, Scrapes(metrics.lines))),
            *log_routes(guard),
            *warning_routes(guard),
            *routes,
        ],
        middleware=middleware,
        exception_handlers={404: _not_found, 405: _not_allowed},
    )
    app.state.answers = answers
    return app


def make_metrics_app(metrics: Metrics) -> Starlette:
    """Return a site that has GET /metrics alone."""
    return Starlette(routes=[route("/metrics", GET=partial(_scrape, Scrapes(metrics.lines)))])


async def _no_metrics(request: Request) -> Response:
    """Answer a scrape of a process whose metrics are switched off, as the original does."""
    reason = "Stats provider is not enabled. Please enable it by set statsProviderClass on bookie configuration"
    return PlainTextResponse(reason, status_code=500)


def make_original_app(
    metrics: Metrics | None,
    routes: Sequence[BaseRoute],
    *,
    not_found: Callable[[Request, Exception], Awaitable[Response]] | None = None,
) -> Starlette:
    """Return a site of a process of BookKeeper: GET /heartbeat and /metrics, the levels of loggers, and `routes`.
    `metrics`: None: they are switched off. `not_found` answers for what is not there."""

    async def heartbeat(request: Request) -> Response:
        return PlainTextResponse("OK\n")

    own = [
        original_route("/heartbeat", (), GET=heartbeat),
        original_route(
            "/metrics",
            (),
            GET=_no_metrics if metrics is None else partial(_scrape, Scrapes(metrics.lines)),
        ),
        *log_routes(),
        *warning_routes(),
    ]
    return Starlette(routes=[*own, *routes], exception_handlers=None if not_found is None else {404: not_found})


def register_answers(metrics: Metrics, answers: Answers) -> None:
    """Add the counts of answers."""
    metrics.family(
        "counter",
        "quire_web_answers_total",
        "Answers of the web port, by the first digit of their status",
        ("status",),
        lambda: (((f"{digit}xx",), count) for digit, count in answers.by_digit.items()),
    )


async def _scrape(scrapes: Scrapes, request: Request) -> Exposition:
    """Return the metrics."""
    return Exposition(scrapes)


class Exposition(Response):
    """The metrics, written in short steps: a scrape does not delay other tasks, however many topics there are."""

    media_type = CONTENT_TYPE

    def __init__(self, scrapes: Scrapes) -> None:
        super().__init__()
        self._scrapes = scrapes
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._scrapes.text() as text:
                part = b"" if scope["method"] == "HEAD" else await text.part(0)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                index = 0
                while part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    index += 1
                    part = await text.part(index)
        except ScrapeRefusedError as error:
            log.warning("scrape refused", reason=str(error))
            await _reason(503, str(error), {"retry-after": "5"})(scope, receive, send)
            return
        await send({"type": "http.response.body", "body": b""})


def _reason(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error in the form of Pulsar's admin API."""
    return JSONResponse({"reason": reason}, status_code=status, headers=headers)


async def _not_found(request: Request, error: Exception) -> Response:
    return _reason(404, f"nothing at {request.url.path}")


async def _not_allowed(request: Request, error: Exception) -> Response:
    allowed = error.headers if isinstance(error, HTTPException) else None
    return _reason(405, f"{request.method} is not allowed at {request.url.path}", allowed)


async def serve_web(
    app: Starlette,
    host: str,
    port: int,
    *,
    stop: trio.Event | None = None,
    listening: Callable[[tuple[str, int]], None] | None = None,
    tls: ServerTls | None = None,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a web port until `stop` is set or the task is cancelled. `listening` is called with the address it listens
    on (port 0 picks a free one), which it starts with; OSError if the port is taken. With `tls` it is an https port."""
    listeners: list[_Listener | TlsListener]
    if tls is None:
        listeners = [_Listener(each) for each in await trio.open_tcp_listeners(port, host=host)]
    else:
        from quire.service.https import TlsListener  # imported only where it is used, as TLS is

        listeners = [TlsListener(await RealNetwork().listen(host, port), tls, send_s=SEND_S)]
    address = listeners[0].address
    config = Config()
    config.include_server_header = False
    config.logger_class = _ServerLog
    config.keep_alive_timeout = IDLE_S
    counts = ConnectionCounts()
    answers: Answers = getattr(app.state, "answers", None) or Answers()
    serving: set[_Connection | TlsConnection] = set()

    async def serve_one(connection: _Connection | TlsConnection) -> None:
        serving.add(connection)
        wrapped = ASGIWrapper(cast(Any, connection.app(app)))
        try:
            server = WebConnection(wrapped, config, connection.context, ConnectionState({}), cast(Any, connection))
            server.answers = answers
            await server.run()
        finally:
            serving.discard(connection)

    async def end_idle() -> None:
        for connection in list(serving):
            await connection.context.terminated.set()

    if listening is not None:
        listening(address)
    stop = trio.Event() if stop is None else stop
    async with trio.open_nursery() as nursery:

        def drain() -> None:
            nursery.start_soon(end_idle, name="http drain")

        for listener in listeners:
            serve = partial(
                serve_connections,
                cast(Any, listener),
                serve_one,
                stop=stop,
                grace_s=GRACE_S,
                connections_max=CONNECTIONS_MAX,
                on_drain=drain,
                counts=counts,
                name="http",
            )
            await nursery.start(serve, name="http")
        task_status.started(address)


class _Connection:
    """Connection with the interface hypercorn expects of a stream. A connection closed by its peer does not wait for
    another request."""

    is_tls = False

    def __init__(self, stream: trio.SocketStream) -> None:
        self.context = WorkerContext(None)
        self.socket = stream.socket
        self.send_eof, self.aclose = stream.send_eof, stream.aclose
        self._stream = stream
        self.peer = ""
        with suppress(OSError):  # it may be closed already
            host, port = stream.socket.getpeername()[:2]
            self.peer = f"{host}:{port}"

    def app(self, app: ASGIApp) -> ASGIApp:
        return app

    async def receive_some(self, max_bytes: int) -> bytes:
        received = bytes(await self._stream.receive_some(max_bytes))
        if not received:
            await self.context.terminated.set()
        return received

    async def send_all(self, data: bytes) -> None:
        """Send a part of an answer. A client that does not take it in time is disconnected."""
        with trio.move_on_after(SEND_S) as scope:
            try:
                await self._stream.send_all(data)
            except trio.BusyResourceError:
                # Another task is closing the connection, whose client has broken the protocol.
                raise trio.ClosedResourceError("the connection is being closed") from None
        if scope.cancelled_caught:
            log.debug("client of the web port too slow", connection=self.peer, deadline_s=SEND_S)
            raise trio.BrokenResourceError("the client does not take the answer")

    def close(self) -> None:
        self.socket.close()


class _Listener:
    """One address of the web port. New connections wait while the remaining descriptors are reserved for files."""

    capacity = 0

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    @property
    def address(self) -> tuple[str, int]:
        found: tuple[str, int] = self._listener.socket.getsockname()[:2]
        return found

    async def accept(self) -> _Connection:
        await trio.lowlevel.wait_readable(self._listener.socket)
        check_descriptors(self._listener.socket.fileno())
        return _Connection(await self._listener.accept())

    def close(self) -> None:
        self._listener.socket.close()


class _ServerLog(HypercornLogger):
    """Messages of hypercorn as lines of the log; access lines are dropped."""

    def __init__(self, config: Config) -> None:
        self.access_logger = None
        self.error_logger = None

    async def critical(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.error("http server", message=_formatted(message, args))

    async def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.error("http server", message=_formatted(message, args))

    async def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.exception("http server", message=_formatted(message, args))

    async def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.warning("http server", message=_formatted(message, args))

    async def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.debug("http server", message=_formatted(message, args))

    async def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        pass

    async def log(self, level: int, message: str, *args: Any, **kwargs: Any) -> None:
        if level >= logging.WARNING:
            log.warning("http server", message=_formatted(message, args))


def _formatted(message: str, args: tuple[Any, ...]) -> str:
    return message % args if args else message
