"""A topic at the moment of its backup, and the begin and the end of its restoration.

GET      {topic}/quireBackup         {"entries":9,"last":"3:8","terminated":false,"openTransaction":false,
                                      "restoring":"","properties":{},"subscriptions":["a"]}
PUT      {topic}/quireBackup         body: {"backup":id,"properties":{}}; {"entries":0}; begin, or continue what was
                                     interrupted; 409 the topic exists
POST     {topic}/quireBackup         body: {"entries":9}; 204; the topic is whole; 409 it has not so many entries

`PUT` with `partitions` makes the node of a partitioned topic, whose partitions were made before it. A topic is created
in one write with the property that says from which backup it is being restored. While it has it, brokers give it no
producers and consumers, and trim nothing. The last change removes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from broker.admin.backup.entries import check_being_restored, entry_count
from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.positions.every import on_topic
from broker.admin.properties import ELSEWHERE, check_size
from broker.admin.redirects import at_owner
from broker.admin.requests import INT32_MAX, INT64_MAX, PROPERTIES, AdminCall
from broker.admin.resource import answer
from broker.errors import ServiceNotReadyError, TopicExistsError, translated
from broker.topics.system_names import is_system_cursor
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.keeping import RESTORING, restored_from
from managed_ledger.ledger_list import new_list
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.metadata.errors import NodeExistsError
from quire.service.web.shapes import Record, Text, Whole
from quire.wire.pulsar.names import TopicName

_BEGIN: Final = Record(
    {"backup": Text(1), "properties": PROPERTIES, "partitions": Whole(1, INT32_MAX)}, needed=("backup",)
)
_END: Final = Record({"entries": Whole(0, INT64_MAX)})


async def get(call: AdminCall) -> Response:
    async def work(topic: Topic) -> dict[str, Any]:
        topic.check_open()
        return {
            "entries": entry_count(topic),
            "last": str(topic.ledger.last_confirmed),
            "terminated": topic.ledger.state is State.TERMINATED,
            "openTransaction": topic.read_bound is not None,
            "restoring": restored_from(topic.ledger.properties),
            "properties": {name: value for name, value in topic.ledger.properties if name != RESTORING},
            "subscriptions": [name for name in topic.ledger.cursors if not is_system_cursor(name)],
        }

    return answer(await on_topic(call, work))


async def begin(call: AdminCall) -> Response:
    name, given = call.topic(), _BEGIN.check(await call.json(), "a restoration", MalformedRequestError)
    backup, properties = given["backup"], {**given.get("properties", {}), RESTORING: given["backup"]}
    await at_owner(call, name)
    check_given(given.get("properties", {}))
    await call.administration.check_namespace(name)
    if "partitions" in given:
        await _begin_partitioned(call, name, given["partitions"], properties)
        return answer({"entries": 0})
    path = log_path(name.managed_ledger_path)
    async with call.administration.partitioned.changing(name.partitioned):
        if await call.administration.partitions(name):
            raise TopicExistsError(f"{name.full} exists, and is partitioned")
        await call.administration.check_new_topic(name)
        with translated(name.full):
            try:
                await call.administration.metadata.create(path, new_list(tuple(properties.items())), make_parents=True)
            except NodeExistsError:
                pass  # begun before, or it exists: see below

    async def work(topic: Topic) -> int:
        topic.check_open()
        check_same(restored_from(topic.ledger.properties), backup, name)
        return entry_count(topic)

    return answer({"entries": await on_topic(call, work)})


async def _begin_partitioned(call: AdminCall, name: TopicName, count: int, properties: dict[str, str]) -> None:
    try:
        await call.administration.create_partitioned_topic(name, count, properties)
    except TopicExistsError:
        found = await call.administration.partitioned.find(name)
        check_same(restored_from(() if found is None else found.properties), properties[RESTORING], name)


async def end(call: AdminCall) -> None:
    name, given = call.topic(), _END.check(await call.json(), "a restoration", MalformedRequestError)
    if await call.administration.partitions(name):
        await call.administration.partitioned.update_properties(name, _without)
        return

    async def work(topic: Topic) -> None:
        topic.check_open()
        check_being_restored(topic)
        if (count := entry_count(topic)) != given.get("entries", count):
            raise TopicExistsError(f"{topic.name.full} has {count} entries, not {given['entries']}: restore it again")
        try:
            await topic.ledger.update_properties(_without)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
        topic.reload()  # what is recovered from entries at loading had none to read

    await on_topic(call, work)


def check_given(properties: Mapping[str, str]) -> None:
    """Raise PreconditionError if the properties are too large, or bind the topic to one elsewhere.

    >>> check_given({"PULSAR.SHADOW_SOURCE": "persistent://other/ns/secrets"})
    Traceback (most recent call last):
    broker.admin.errors.PreconditionError: the property 'PULSAR.SHADOW_SOURCE' binds a topic to another: not restored
    """
    check_size(properties)
    if bound := sorted(ELSEWHERE & properties.keys()):
        raise PreconditionError(f"the property {bound[0]!a} binds a topic to another: not restored")


def _without(before: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in before.items() if name != RESTORING}


def check_same(stored: str, backup: str, name: TopicName) -> None:
    """Raise TopicExistsError if a topic is not being restored from this backup."""
    if not stored:
        raise TopicExistsError(f"{name.full} exists")
    if stored != backup:
        raise TopicExistsError(f"{name.full} is being restored from another backup, {stored[:80]!a}")
