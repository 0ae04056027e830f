"""Levels of loggers on a web port, to be read and changed while the server runs. They are this process's, and are gone
when it ends.

    GET    /quire/loggers                    {"": "info", "broker.dispatch": "debug"}; "" is the level of all others
    PUT    /quire/loggers?level=debug        the level of all others
    PUT    /quire/loggers/broker.dispatch?level=debug
    DELETE /quire/loggers/broker.dispatch    it has the level of the logger above it again

A change is answered with the levels in force, a mistake with 400 and {"reason": ...}. A broker with authorization asks
for a super user; otherwise the resource is as open as the port. What is logged below info names clients and topics,
never what messages contain.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from quire.service.log import get_logger, levels, set_level
from quire.service.routes import Check, guarded, route
from quire.service.web.parameters import Parameter

_LEVEL = Parameter("level", "Level, such as debug.")
LEVELS_MAX = 1000
"""Single loggers that can have levels of their own."""

log = get_logger(__name__)


async def _read(request: Request) -> JSONResponse:
    """Return the levels of loggers."""
    return JSONResponse(levels())


async def _change(request: Request) -> JSONResponse:
    """Set the level of a logger, or of all others."""
    return _set(request.path_params.get("name", ""), _LEVEL.text(request.query_params) or "")


async def _take_back(request: Request) -> JSONResponse:
    """Give a logger the level of the one above it."""
    return _set(request.path_params["name"], None)


def _set(name: str, level: str | None) -> JSONResponse:
    if level and name not in levels() and len(levels()) > LEVELS_MAX:
        return JSONResponse({"reason": f"{LEVELS_MAX} loggers have levels of their own"}, status_code=400)
    try:
        set_level(name, level)
    except ValueError as error:
        return JSONResponse({"reason": str(error)}, status_code=400)
    log.info("log level changed", of=name, to=level or "")
    return JSONResponse(levels())


def log_routes(guard: Callable[[str], Check] | None = None) -> list[Route]:
    """Return the resources above. `guard`: returns the check of requests to a path."""
    every, one = "/quire/loggers", "/quire/loggers/{name}"
    return [
        route(every, {"PUT": (400,)}, GET=guarded(every, _read, guard), PUT=guarded(every, _change, guard)),
        route(
            one,
            {"PUT": (400,), "DELETE": (400,)},
            PUT=guarded(one, _change, guard),
            DELETE=guarded(one, _take_back, guard),
        ),
    ]
