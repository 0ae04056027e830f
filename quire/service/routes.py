"""Resources of a web port: a path, and a handler for each method, given as GET=read, PUT=write. broker.admin.resource
has those of the admin REST, in the same form, with its own matching of paths and its own answers to what handlers
raise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Final

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


_BOOKIE: Final = "/api/v1/bookie"
_WRONG_METHOD: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "/metrics": (403, "{method} is forbidden. Should be GET method"),
        "/api/v1/config/server_config": (404, "Request body not found. should contains k-v pairs"),
        "/api/v1/ledger/read": (404, "Not found method. Should be GET method, with ledger_id provided"),
        "/api/v1/autorecovery/lost_bookie_recovery_delay": (404, "Not found method. Should be PUT method"),
        f"{_BOOKIE}/cluster_info": (404, "Only GET is supported."),
        f"{_BOOKIE}/entry_location_compact": (
            405,
            "Not found method. Should be PUT to trigger entry location compact, Or GET to get entry location compact "
            "state.",
        ),
        f"{_BOOKIE}/gc": (405, "Not allowed method. Should be PUT to trigger GC, Or GET to get Force GC state."),
        f"{_BOOKIE}/gc/resume_compaction": (
            404,
            "Not found method. Should be PUT to resume major or minor compaction, Or GET to get compaction state.",
        ),
        f"{_BOOKIE}/gc/suspend_compaction": (
            404,
            "Not found method. Should be PUT to suspend major or minor compaction, Or GET to get compaction state.",
        ),
        f"{_BOOKIE}/gc_details": (404, "Only support GET method to retrieve GC details."),
        f"{_BOOKIE}/info": (404, "Only GET is supported."),
        f"{_BOOKIE}/is_ready": (404, "Only support GET method check if bookie is ready."),
        f"{_BOOKIE}/sanity": (404, "Only support GET method to retrieve bookie sanity state."),
        f"{_BOOKIE}/state": (404, "Only support GET method to retrieve bookie state."),
        f"{_BOOKIE}/state/readonly": (404, "Unsupported method. Should be GET or PUT method"),
    }
)
"""Answers to a wrong method that are not those of most of BookKeeper's resources."""


def original_route(path: str, failures: tuple[type[Exception], ...], /, **handlers: Handler) -> Route:
    """Return a resource as BookKeeper serves it: a wrong method is not found, and said to be; a handler that raises one
    of the `failures` answers 500."""
    wrong = (404, f"Not found method. Should be {' or '.join(handlers)} method")
    status, text = _WRONG_METHOD.get(path, wrong)

    async def answer(request: Request) -> Response:
        handler = handlers.get(request.method)
        if handler is None:
            return PlainTextResponse(text.replace("{method}", request.method), status_code=status)
        try:
            return await handler(request)
        except failures as error:
            log.warning("a request to the web port failed", path=path, reason=str(error))
            return PlainTextResponse("Internal Server Error", status_code=500)

    return Route(path, answer, methods=["GET", "PUT", "POST", "DELETE"])
