"""Authentication of requests to the web port: a middleware before all resources.

`/status.html` is for load balancers and needs no credentials, nor does `/metrics` unless authenticateMetricsEndpoint is
true. Everything else does, health checks too. The roles are in the scope, as `principal`. Source: Pulsar's WebService
and AuthenticationFilter.

Credentials are only in headers: a query is never looked at, since URLs are logged by proxies.
"""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.security.authentication.authentication import Authentication
from broker.security.authentication.errors import AuthenticationError, RolesError
from quire.service.https import PEER_CERTIFICATE
from quire.service.log import get_logger
from quire.service.neighbours.rare_lines import RareLines
from quire.world.doors import Clock

log = get_logger(__name__)

OPEN = frozenset(("/status.html",))
METRICS = frozenset(("/metrics", "/metrics/"))
REQUIRED = "Authentication required"


class RequestAuthentication:
    """Middleware that gives each request its roles, or answers 401."""

    def __init__(
        self,
        app: ASGIApp,
        authentication: Authentication,
        clock: Clock,
        rare_lines: RareLines,
        *,
        metrics_too: bool = False,
    ) -> None:
        self._app = app
        self._authentication = authentication
        self._clock = clock
        self._rare_lines = rare_lines
        self._open = OPEN if metrics_too else OPEN | METRICS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open:
            client = scope.get("client")
            address = f"{client[0]}:{client[1]}" if client else ""
            try:
                principal = self._authentication.of_request(
                    _headers(scope), scope.get(PEER_CERTIFICATE), self._clock.wall_ms(), address
                )
            except AuthenticationError as error:
                if self._rare_lines.admits("authentication failed", address, str(error)):
                    log.warning("authentication failed", connection=address, reason=str(error))
                text = str(error) if isinstance(error, RolesError) else REQUIRED
                await JSONResponse({"reason": text}, status_code=401)(scope, receive, send)
                return
            scope["principal"] = principal
        await self._app(scope, receive, send)


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers that matter, of each the first value."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found
