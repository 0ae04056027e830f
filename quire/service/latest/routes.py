"""The latest warnings and errors of a process, on its web port.

    GET /quire/warnings?after=17&limit=100     {"newest": 40, "left_off": 0, "lines": [{"number", "timestamp", "level",
                                               "logger", "event", "text"}]}, oldest first

`after` is the last number that is known. A process that was started again counts from 1: it answers with all its lines
to a number that it never gave. `left_off` counts lines after `after` that are not in the answer, because they are no
longer kept or the limit was reached. A broker with authorization asks for a super user; otherwise the resource is as
open as the port.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from quire.service.latest.warnings import LATEST, LINES_MAX
from quire.service.routes import Check, guarded, route
from quire.service.web.parameters import ParameterError, WholeNumber

PATH = "/quire/warnings"
_AFTER = WholeNumber("after", "Last number that is known; 0 for none.", 0, (1 << 53) - 1)
_LIMIT = WholeNumber("limit", "Lines to answer with at most.", 1, LINES_MAX)


async def _read(request: Request) -> JSONResponse:
    """Return the latest warnings and errors of this process."""
    try:
        after, limit = _AFTER.of(request.query_params) or 0, _LIMIT.of(request.query_params) or LINES_MAX
    except ParameterError as error:
        return JSONResponse({"reason": str(error)}, status_code=400)
    lines, left_off = LATEST.after(after, limit)
    newest = lines[-1].number if lines else LATEST.newest
    return JSONResponse({"newest": newest, "left_off": left_off, "lines": [line.as_json() for line in lines]})


def warning_routes(guard: Callable[[str], Check] | None = None) -> list[Route]:
    """Return the resource above. `guard`: returns the check of requests to a path."""
    return [route(PATH, {"GET": (400,)}, GET=guarded(PATH, _read, guard))]
