"""A topic as it is stored: its list of ledgers and its cursors, and the backlog that follows from them.

GET  {topic}/internal-info    {"version","modificationDate","ledgers":[...],"cursors":{name:{...}},"properties"}; for a
                              partitioned topic {"partitions":{name:{...}}}; read from the metadata by any broker, so of
                              an open ledger it has only the id, and of a cursor what its node says
GET  {topic}/backlog          {"storageSize","totalMessages","messageBacklog","brokerName","topicName",
                              "dataLedgerDetails","cursorDetails","statGeneratedAt"}, counted in entries; 405 it is
                              partitioned

404 there is no topic. Source: Pulsar's PersistentTopicsBase (internalGetManagedLedgerInfo, internalGetBacklogAsync),
ManagedLedgerInfo, PersistentOfflineTopicStats, ManagedLedgerOfflineBacklog.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from broker.admin.positions.every import on_topic
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.admin.stats.internal_stats import take
from broker.background import for_all
from broker.errors import ServiceNotReadyError, TopicNotFoundError, translated
from broker.topics.topic import Topic
from cursors.errors import CursorDamagedError
from cursors.position_info import NO_LEDGER, decode_node
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.ledger_list import LedgerList, decode
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from quire.metadata.errors import NoNodeError
from quire.metadata.store import Node
from quire.wire.pulsar.names import TopicName, decode_name


async def internal_info(call: AdminCall) -> Response:
    name = call.topic()
    count = await call.administration.partitions(name)
    if not count:
        found = await _info(call, name)
        if found is None:
            raise TopicNotFoundError(f"Topic {name.full} not found")
        return answer(found)
    partitions: dict[str, Any] = {}

    async def read(each: TopicName) -> None:
        info = await _info(call, each)
        if info is not None:
            partitions[each.full] = info

    every = [name.with_partition(index) for index in range(count)]
    await for_all(every, read, name=call.line)
    shown = {each.full: partitions[each.full] for each in every if each.full in partitions}
    return answer({"version": 0, "ledgers": [], "cursors": {}, "partitions": shown})


async def _info(call: AdminCall, name: TopicName) -> dict[str, Any] | None:
    """Return what is stored of a topic; None: there is none."""
    metadata, path = call.administration.metadata, log_path(name.managed_ledger_path)
    with translated(path):
        node = await metadata.get(path)
        if node is None:
            return None
        try:
            components = await metadata.children(path)
        except NoNodeError:
            components = []
    try:
        stored = decode(node.value)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"{name.full}: {error}") from error
    cursors: dict[str, Any] = {}
    for component in sorted(components):
        with translated(path):
            cursor = await metadata.get(f"{path}/{component}")
        if cursor is not None:
            cursors[decode_name(component)] = _cursor(cursor)
    return {**_of_node(node), **_list(stored), "cursors": cursors, "properties": dict(stored.properties)}


def _of_node(node: Node) -> dict[str, Any]:
    if node.modified_ms is None:
        return {"version": node.version}
    date = datetime.fromtimestamp(node.modified_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {"version": node.version, "modificationDate": date.replace("+00:00", "Z")}


def _list(stored: LedgerList) -> dict[str, Any]:
    ledgers: list[dict[str, Any]] = []
    for info in stored.ledgers:
        shown: dict[str, Any] = {"ledgerId": info.ledger_id}
        if info.closed_ms:  # it is closed
            shown |= {"entries": info.entries, "size": info.size, "timestamp": info.closed_ms}
        ledgers.append({**shown, "isOffloaded": info.is_offloaded})
    terminated = {} if stored.terminated is None else {"terminatedPosition": _position(stored.terminated)}
    return {"ledgers": ledgers, **terminated}


def _cursor(node: Node) -> dict[str, Any]:
    try:
        cursor, stored = decode_node(node.value)
    except CursorDamagedError as error:
        raise ServiceNotReadyError(f"a cursor cannot be read: {error}") from error
    shown: dict[str, Any] = {**_of_node(node), "cursorsLedgerId": cursor.ledger_id}
    if cursor.ledger_id == NO_LEDGER:  # else its ledger has the state
        shown["markDelete"] = _position(stored.mark_delete)
        shown["individualDeletedMessages"] = [
            {"from": _position(Position(ledger_id, first - 1)), "to": _position(Position(ledger_id, last))}
            for ledger_id, first, last in stored.ranges.ranges()
        ]
    return {**shown, "properties": dict(stored.properties)} if stored.properties else shown


def _position(position: Position) -> dict[str, int]:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id}


async def backlog(call: AdminCall) -> Response:
    broker = call.service.broker_url().partition("://")[2]
    return answer(await on_topic(call, lambda topic: _backlog(topic, broker)))


async def _backlog(topic: Topic, broker: str) -> dict[str, Any]:
    topic.check_open()
    ledger, stats = topic.ledger, take(topic, {}, show_metadata=False)
    cursors = {
        name: {
            "cursorBacklog": cursor.backlog(),
            "cursorLedgerId": NO_LEDGER if cursor.store is None else cursor.store.ledger_id,
        }
        for name, cursor in ledger.cursors.items()
    }
    return {
        "storageSize": stats.total_size,
        "totalMessages": stats.entry_count,
        "messageBacklog": sum(each["cursorBacklog"] for each in cursors.values()),
        "brokerName": broker,
        "topicName": topic.name.managed_ledger_path,
        "dataLedgerDetails": [
            {"entries": info.entries, "timestamp": info.closed_ms, "size": info.size, "ledgerId": info.ledger_id}
            for info in ledger.ledgers
        ],
        "cursorDetails": cursors,
        "statGeneratedAt": topic.context.world.clock.wall_ms(),
    }
