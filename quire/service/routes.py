"""Resources of a web port: a path, and a handler for each method, given as GET=read, PUT=write. broker.admin.resource
has those of the admin REST, in the same form, with its own matching of paths and its own answers to what handlers
raise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quire.service.log import get_logger

Handler = Callable[[Request], Awaitable[Response]]

Check = Callable[[Request], Awaitable[Response | None]]
"""Check of a request: returns its refusal; None: it is permitted."""

log = get_logger(__name__)


class OwnRoute(Route):
    """Resource that keeps its handlers, for the description of an API."""

    handlers: Mapping[str, Handler]
    failures: Mapping[str, Sequence[int]]
    """Statuses of answers that are no success, by method."""


def route(path: str, failures: Mapping[str, Sequence[int]] = MappingProxyType({}), /, **handlers: Handler) -> OwnRoute:
    """Return a resource; a method that is not served gets 405. HEAD is answered as GET is, without the body.
    `failures`: the statuses of answers that are no success, by method."""

    async def answer(request: Request) -> Response:
        method = request.method if request.method in handlers else "GET"
        return await handlers[method](request)

    made = OwnRoute(path, answer, methods=list(handlers))
    made.handlers, made.failures = handlers, failures
    return made


def guarded(path: str, handler: Handler, guard: Callable[[str], Check] | None) -> Handler:
    """Return a handler behind the check of its path; the handler itself if there is no guard."""
    if guard is None:
        return handler
    check = guard(path)

    @wraps(handler)
    async def answer(request: Request) -> Response:
        refusal = await check(request)
        return await handler(request) if refusal is None else refusal

    return answer


def original_route(path: str, failures: tuple[type[Exception], ...], **handlers: Handler) -> Route:
    """Return a resource as BookKeeper serves it: a wrong method is not found, and said to be; a handler that raises one
    of the `failures` answers 500."""

    async def answer(request: Request) -> Response:
        handler = handlers.get(request.method)
        if handler is None:
            return PlainTextResponse(f"Not found method. Should be {' or '.join(handlers)} method", status_code=404)
        try:
            return await handler(request)
        except failures as error:
            log.warning("a request to the web port failed", path=path, reason=str(error))
            return PlainTextResponse("Internal Server Error", status_code=500)

    return Route(path, answer, methods=["GET", "PUT", "POST", "DELETE"])
