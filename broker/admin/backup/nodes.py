"""Nodes of the metadata store, read for a backup of a cluster's metadata.

GET      /admin/v2/quireNodes?after=/a/b    {"nodes":[["/a/c","<base64>"]],"more":true,"sequences":{"/a/d/-":7}}

At most NODES_MAX nodes and about BYTES_MAX bytes, in the order of `quire.metadata.walking`. The last answer has the
next numbers of the sequences that are counted on.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from starlette.responses import Response

from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import translated
from quire.metadata.walking import next_numbers, some_nodes
from quire.service.web.parameters import Parameter

NODES_MAX: Final = 1000
BYTES_MAX: Final = 4 << 20
_AFTER: Final = Parameter("after", "Path of the last node that was answered; none: begin.")


async def get(call: AdminCall) -> Response:
    after, store = call.given(_AFTER) or "", call.cluster.metadata
    with translated("metadata"):
        found, more = await some_nodes(store, after, nodes_max=NODES_MAX, bytes_max=BYTES_MAX)
        sequences = {} if more else await next_numbers(store, call.cluster.ledgers_root)
    nodes = [[path, b64encode(value).decode()] for path, value in found]
    return answer({"nodes": nodes, "more": more, "sequences": sequences})
