"""Routes of the calls of backups, of offloading and of `quire top`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from starlette.routing import BaseRoute

from broker.admin.backup import entries, nodes, offloading, restorations, subscriptions, topics
from broker.admin.errors import STATUSES
from broker.admin.resource import Resource
from broker.admin.top import handler as top
from broker.errors import NotAllowedError, PartitionCountError


def resources(at: Callable[..., Resource], topic: str) -> Iterator[BaseRoute]:
    """Yield the routes. `topic`: path of a topic."""
    begin = {"PUT": {PartitionCountError: STATUSES[PartitionCountError], NotAllowedError: 412}}
    yield at(f"{topic}/quireBackup", statuses=begin, GET=topics.get, PUT=topics.begin, POST=topics.end)
    yield at(f"{topic}/quireEntries", GET=entries.read, POST=entries.append)
    yield at(
        f"{topic}/quireOffload",
        GET=offloading.get,
        PUT=offloading.prepare,
        POST=offloading.complete,
        DELETE=offloading.release,
    )
    yield at(
        f"{topic}/subscription/{{subscription}}/quireState",
        GET=subscriptions.get,
        PUT=subscriptions.put,
        POST=subscriptions.post,
    )
    yield at("/admin/v2/quireNodes", GET=nodes.get)
    yield at("/admin/v2/quireRestores", GET=restorations.get)
    yield at("/admin/v2/quireTop", GET=top.get)
