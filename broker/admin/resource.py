"""A resource: a path and the handlers of its methods. Also formats every answer of this API.

A handler returns a response, or None: 200 without a body where something was read, else 204. It has a deadline. What it
raises becomes a status and a reason:

    RedirectError              307, and where to
    AdminError, BrokerError    its status (errors.py); also where the request is not permitted (permissions.access)
    deadline passed            504
    anything else              500, and an ERROR in the log: an internal error

Administration sees a change through once it has begun. So a deadline that passes, or a client that goes away, leaves
nothing half done, and asking again shows how it ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from broker.admin.errors import (
    AdminError,
    MalformedRequestError,
    NotServedError,
    OverloadedError,
    RedirectError,
    Statuses,
    status_of,
)
from broker.admin.permissions.access import check_access
from broker.admin.raw_paths import PathPattern, raw_path
from broker.admin.requests import AdminCall, Service
from broker.errors import BrokerError
from broker.slices import run_through
from quire.service.log import get_logger
from quire.service.web.json_steps import encoding
from quire.service.web.parameters import ParameterError

Handler = Callable[[AdminCall], Awaitable[Response | None]]

_ONLY_READING = ("GET", "HEAD")

log = get_logger(__name__)


class Resource(BaseRoute):
    """A route of Starlette's that matches escaped paths; a method that is not served gets 405 with what is allowed."""

    def __init__(
        self,
        pattern: str,
        service: Service,
        *,
        statuses: Mapping[str, Statuses] | None = None,
        **handlers: Handler,
    ) -> None:
        """Take handlers and special statuses by method.

        Args:
            handlers: handlers by method, such as PUT=create.
            statuses: statuses that differ from the usual ones, by method.
        """
        self._pattern = PathPattern(pattern)
        self._service = service
        self._statuses = {} if statuses is None else statuses
        self._handlers = handlers
        if "GET" in handlers:
            handlers["HEAD"] = handlers["GET"]

    @property
    def pattern(self) -> str:
        """Return the path with its parameters."""
        return self._pattern.pattern

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method."""
        return self._handlers

    @property
    def statuses(self) -> Mapping[str, Statuses]:
        """Return the statuses that differ from the usual ones, by method."""
        return self._statuses

    @property
    def methods(self) -> list[str]:
        """Return the methods that are served."""
        return sorted(self._handlers)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        parts = self._pattern.match(raw_path(scope))
        if parts is None:
            return Match.NONE, {}
        return Match.FULL if scope["method"] in self._handlers else Match.PARTIAL, {"path_params": parts}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        handler = self._handlers.get(request.method)
        if handler is None:
            text = f"{request.method} is not allowed at {request.url.path}"
            return reason(405, text, headers={"Allow": ", ".join(self.methods)})
        call = AdminCall(self._service, request, request.path_params)
        if self._service.under_way >= self._service.requests_max:
            return reason(
                OverloadedError.status, f"{self._service.under_way} requests are under way, the maximum; retry later"
            )
        self._service.under_way += 1
        try:
            with trio.fail_after(self._service.deadline_s):
                await check_access(call, self.pattern)
                response = await handler(call)
                if isinstance(response, JsonAnswer):
                    response = await response.encoded()
        except RedirectError as error:
            return Response(status_code=error.status, headers={"Location": str(error)})
        except AdminError as error:
            return reason(error.status, str(error))
        except ParameterError as error:
            return reason(MalformedRequestError.status, str(error))
        except BrokerError as error:
            return reason(status_of(error, self._statuses.get(request.method, {})), str(error) or type(error).__name__)
        except trio.TooSlowError:
            log.warning("admin request too slow", request=call.line, deadline_s=self._service.deadline_s)
            return reason(504, f"{call.line} did not finish within {self._service.deadline_s:g} s")
        except ClientDisconnect:
            return reason(400, "the client disconnected before its request was read")
        except Exception as error:
            log.error("admin request failed", request=call.line, reason=repr(error), exc_info=True)
            return reason(500, f"internal error ({type(error).__name__}); see the broker log")
        finally:
            self._service.under_way -= 1
        if request.method not in _ONLY_READING:
            log.info("admin", request=call.line)
        if response is None:
            # A value that is not set is an empty 200, as the original answers it.
            return Response(status_code=200 if request.method in _ONLY_READING else 204)
        return response


class NotServed(BaseRoute):
    """Last resource, for all paths under a prefix that no other resource matches: the original may serve them, Quire
    does not."""

    def __init__(self, prefix: str, status: int = NotServedError.status, why: str = "is not served by Quire") -> None:
        self._prefix = prefix
        self._status = status
        self._why = why

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # Partial, so that an existing resource that lacks the method takes precedence.
        served = scope["type"] == "http" and raw_path(scope).startswith(self._prefix)
        return (Match.PARTIAL if served else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = reason(self._status, f"{request.method} {request.url.path} {self._why}")
        await response(scope, receive, send)


def reason(status: int, text: str, *, headers: dict[str, str] | None = None) -> Response:
    """Return an unsuccessful answer as the original formats it."""
    return JSONResponse({"reason": text}, status_code=status, headers=headers)


class AcceptedAnswer(JSONResponse):
    """202 with a JSON body."""

    def __init__(self, value: Any) -> None:
        super().__init__(value, status_code=HTTPStatus.ACCEPTED)


class NoContent(Response):
    """204 of a GET that does something."""

    def __init__(self) -> None:
        super().__init__(status_code=HTTPStatus.NO_CONTENT)


class Empty(Response):
    """200 without a body, where the original answers a change so."""


class Payload(Response):
    """200 with the payload of an entry."""

    media_type = "application/octet-stream"


def text(value: str) -> Response:
    """Return 200 with bare text, as the original writes strings though it declares them JSON."""
    return Response(value, media_type="application/json")


class JsonAnswer(Response):
    """200 with a JSON body, which is encoded in short steps when the handler has returned it."""

    def __init__(self, value: Any) -> None:
        super().__init__(media_type="application/json")
        self._value = value

    async def encoded(self) -> Response:
        """Return the response with its body. Raises ValueError or TypeError for a value that JSON does not have."""
        return Response(await run_through(encoding(self._value)), media_type=self.media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self.encoded())(scope, receive, send)


def answer(value: Any) -> Response:
    """Return 200 with a JSON body."""
    return JsonAnswer(value)
