"""Handlers of the data behind the page of topics.

Below /console/api:

GET      topics                                all topics of the cluster: for super users
GET      topics/{tenant}/{namespace}           those of a namespace
GET      topic-events, topic-events/{tenant}/{namespace}      the same, as server-sent events
GET      loaded-topics                         those of this broker, for the other brokers
GET      whoami                                the role of the request, and what the server checks

Parameters: sort, down, search, only, system, from, limit.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.config import SERVER_VERSION
from broker.console.cluster_events import EventStream, Streams
from broker.console.topics.sampler import EVERY_S, PART, Sampler
from broker.console.topics.table import COLUMNS, ONLY, Wish
from broker.slices import run_through
from quire.service.web.parameters import Flag, OneOf, Parameter, WholeNumber

ROWS_MAX: Final = 500
SEARCH_MAX: Final = 500
SAMPLED_IN_STEP: Final = 200

_SORT = OneOf("sort", "Column of the order.", ("name", *COLUMNS), "name")
_DOWN = Flag("down", "The largest first.")
_SEARCH = Parameter("search", "Part of the name.")
_ONLY = OneOf("only", "Topics that are wanted.", ONLY, "all")
_SYSTEM = Flag("system", "Topics of the servers themselves, too.")
_FROM = WholeNumber("from", "First row, from 0.", 0, 1 << 31)
_LIMIT = WholeNumber("limit", "Rows at most.", 1, ROWS_MAX)
_PART = WholeNumber("limit", "Rows at most.", 1, PART)


class TopicPages:
    """Data of the page of topics of one broker."""

    def __init__(self) -> None:
        self._sampler = Sampler()
        self._streams = Streams()

    async def topics(self, call: AdminCall) -> Response:
        """Answer a part of the topics."""
        return answer(await self._part(call, _wish(call)))

    async def events(self, call: AdminCall) -> EventStream:
        """Follow a part of the topics."""
        return self._streams.make(partial(self._part, call, _wish(call)), EVERY_S)

    async def _part(self, call: AdminCall, wish: Wish) -> dict[str, Any]:
        table = await self._sampler.table(call)
        order = await run_through(table.order(wish))
        first, limit = call.whole(_FROM) or 0, call.whole(_LIMIT) or 100
        curves = self._sampler.curves
        rows = [{**table.row(at), "curve": curves.of(table.names[at])} for at in order[first : first + limit]]
        totals = {} if wish.namespace else table.totals
        return {
            "rows": rows,
            "from": first,
            "matching": len(order),
            "total": None if wish.namespace else len(table.names),
            "totals": {name: round(value, 2) for name, value in totals.items()},
            "atMs": table.at_ms,
        }

    async def loaded(self, call: AdminCall) -> Response:
        """Answer the rows of this broker's topics, for the table of another broker."""
        first, limit = call.whole(_FROM) or 0, call.whole(_PART) or PART
        rows = await self._sampler.rows(call)
        found: list[list[Any]] = []
        for name, row in islice(rows.items(), first, first + limit):
            found.append([name, *(round(each, 2) for each in row)])
            if not len(found) % SAMPLED_IN_STEP:
                await trio.lowlevel.checkpoint()
        end = first + limit
        return answer({"rows": found, "next": end if end < len(rows) else None})

    async def whoami(self, call: AdminCall) -> Response:
        """Answer with which role the request acts."""
        principal = call.principal
        return answer(
            {
                "authentication": principal is not None,
                "authorization": call.service.authorizer is not None,
                "role": None if principal is None else principal.role,
                "cluster": call.cluster.cluster_name,
                "broker": call.broker_id,
                "version": SERVER_VERSION,
            }
        )


def _wish(call: AdminCall) -> Wish:
    return Wish(
        sort=call.choice(_SORT),
        down=call.flag(_DOWN),
        namespace=str(call.namespace()) if "namespace" in call.parts else "",
        search=(call.given(_SEARCH) or "").strip().lower()[:SEARCH_MAX],
        only=call.choice(_ONLY),
        system=call.flag(_SYSTEM),
    )
