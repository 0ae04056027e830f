"""Restorations that were begun and are not complete.

GET      /admin/v2/quireRestores    [{"topic":"persistent://a/b/c","backup":"c0ffee","begunMs":1,"touchedMs":2,
                                      "unfinished":["persistent://a/b/c-partition-1"]}]

`touchedMs` is the time of the last request that began or continued it, which comes every ten minutes while it runs.
`unfinished` are the topics, or partitions, that have no clients yet; it is empty if only the partitioned topic is left
to be opened. `problem` says why the metadata of the topic cannot be read. A restoration that was given up is deleted
with `DELETE` of its topic, or by its broker (quireAbandonedRestoreSeconds).
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import MetadataRefusedError
from broker.topics.life.restorations import Restorations


def restorations_of(call: AdminCall) -> Restorations:
    """Return the list of restorations. Raises NotServedError if there is no cluster."""
    return Restorations(call.administration.metadata, call.administration.partitioned, call.cluster.wall_ms)


async def get(call: AdminCall) -> Response:
    restorations, found = restorations_of(call), list[dict[str, Any]]()
    for each in await restorations.all():
        row: dict[str, Any] = {
            "topic": each.topic.full,
            "backup": each.backup,
            "begunMs": each.begun_ms,
            "touchedMs": each.touched_ms,
        }
        try:
            unfinished, node = await restorations.unfinished(each.topic)
        except MetadataRefusedError as error:
            found.append({**row, "unfinished": [], "problem": str(error)})
            continue
        if unfinished or node:
            found.append({**row, "unfinished": [part.full for part in unfinished]})
    return answer(found)
