"""A topic at the moment of its backup, and the begin and the end of its restoration.

GET      {topic}/quireBackup         {"entries":9,"last":"3:8","terminated":false,"openTransaction":false,
                                      "restoring":"","properties":{},"subscriptions":["a"]}
PUT      {topic}/quireBackup         body: {"backup":id,"properties":{}}; {"entries":0}; begin, or continue what was
                                     interrupted; 409 the topic exists; 412 it may not be made
POST     {topic}/quireBackup         body: {"entries":9}; 204; the topic is whole; 409 it has not so many entries, 412
                                     its backlog is above a quota of size, or older than the message TTL or a quota of
                                     age; with "expire":true the age is not checked. With "check":true nothing is
                                     changed

`PUT` with `partitions` makes a partitioned topic with all its partitions; that of a partition is for one of these. A
topic is created in one write with the property that says from which backup it is being restored. So a restoration that
was given up leaves a topic, which is deleted as any other. While a topic has the property, brokers give it no producers
and consumers, and trim nothing. The last change removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin.backup.entries import check_being_restored, entry_count
from broker.admin.backup.restorations import restorations_of
from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.positions.every import on_topic
from broker.admin.properties import ELSEWHERE, check_size
from broker.admin.redirects import at_owner
from broker.admin.requests import INT32_MAX, INT64_MAX, PROPERTIES, AdminCall
from broker.admin.resource import answer
from broker.errors import BrokerError, MetadataRefusedError, ServiceNotReadyError, TopicExistsError, translated
from broker.topics.quotas.backlog import quotas_of, size_of
from broker.topics.quotas.checks import older_than
from broker.topics.quotas.quota import is_too_large
from broker.topics.system_names import is_system_cursor, is_system_topic
from broker.topics.topic import Topic
from broker.topics.topic_policies.catalog import MESSAGE_TTL
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.keeping import RESTORING, restored_from
from managed_ledger.ledger_list import new_list
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.metadata.errors import NodeExistsError
from quire.service.web.shapes import Record, Text, Truth, Whole
from quire.wire.pulsar.names import TopicName

_BEGIN: Final = Record(
    {"backup": Text(1), "properties": PROPERTIES, "partitions": Whole(1, INT32_MAX)}, needed=("backup",)
)
_END: Final = Record({"entries": Whole(0, INT64_MAX), "check": Truth(), "expire": Truth()})


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
    backup, properties = given["backup"], given.get("properties", {})
    await at_owner(call, name)
    check_given(properties)
    await call.administration.check_namespace(name)
    if "partitions" in given:
        await _begin_partitioned(call, name, given["partitions"], {**properties, RESTORING: backup})
        return answer({"entries": 0})
    if name.partition < 0:
        await _make(call, name, {**properties, RESTORING: backup})
    else:
        await _check_partition(call, name)

    def with_properties(before: dict[str, str]) -> dict[str, str]:
        return {**before, **properties}

    async def work(topic: Topic) -> int:
        topic.check_open()
        topic.used_at = trio.current_time()
        stored = dict(topic.ledger.properties)
        check_same(stored.get(RESTORING, ""), backup, name)
        await restorations_of(call).note(name, backup)
        if with_properties(stored) != stored:  # a partition was made without them
            await _change_properties(topic, with_properties)
        return entry_count(topic)

    return answer({"entries": await on_topic(call, work)})


async def _make(call: AdminCall, name: TopicName, properties: dict[str, str]) -> None:
    """Create a topic without partitions, unless it exists."""
    path = log_path(name.managed_ledger_path)
    async with call.administration.partitioned.changing(name):
        if await call.administration.partitions(name):
            raise TopicExistsError(f"{name.full} exists, and is partitioned")
        await call.administration.check_new_topic(name)
        with translated(name.full):
            if await call.administration.metadata.get(path) is not None:
                return  # begun before, or it exists: the caller looks
            await restorations_of(call).note(name, properties[RESTORING])
            try:
                await call.administration.metadata.create(path, new_list(tuple(properties.items())), make_parents=True)
            except NodeExistsError:
                pass  # begun before, or it exists: the caller looks


async def _check_partition(call: AdminCall, name: TopicName) -> None:
    """Raise PreconditionError if there is no partitioned topic that this is a partition of. Any other topic of such a
    name could never get its siblings."""
    count = await call.administration.partitions(name.partitioned)
    if name.partition >= count:
        raise PreconditionError(
            f"{name.partitioned.full} has {count} partitions: {name.full} cannot be one of them, and no other topic "
            "can have such a name"
        )


async def _begin_partitioned(call: AdminCall, name: TopicName, count: int, properties: dict[str, str]) -> None:
    if name.partition >= 0:
        raise PreconditionError(f"{name.full} is the name of a partition")
    if await call.administration.partitioned.find(name) is None:
        log_value = new_list(((RESTORING, properties[RESTORING]),))
        await restorations_of(call).note(name, properties[RESTORING])
        try:
            await call.administration.create_partitioned_topic(name, count, properties, log_value)
            return
        except BrokerError as error:
            if await call.administration.partitioned.find(name) is None:
                await restorations_of(call).forget(name)
                raise
            if not isinstance(error, TopicExistsError):
                raise
    found = await call.administration.partitioned.find(name)
    check_same(restored_from(() if found is None else found.properties), properties[RESTORING], name)
    await restorations_of(call).note(name, properties[RESTORING])
    if found is not None and found.partitions != count:
        raise TopicExistsError(f"{name.full} has {found.partitions} partitions, not {count}")


async def end(call: AdminCall) -> None:
    name, given = call.topic(), _END.check(await call.json(), "a restoration", MalformedRequestError)
    changes = not given.get("check", False)
    if await call.administration.partitions(name):
        if changes:
            await call.administration.partitioned.update_properties(name, _without)
            await restorations_of(call).forget(name)
        return

    async def work(topic: Topic) -> None:
        topic.check_open()
        check_being_restored(topic)
        if (count := entry_count(topic)) != given.get("entries", count):
            raise TopicExistsError(f"{topic.name.full} has {count} entries, not {given['entries']}: restore it again")
        check_backlog(topic)
        if not given.get("expire", False):
            await check_age(topic)
        if changes:
            await _change_properties(topic, _without)
            topic.reload()  # what is recovered from entries at loading had none to read

    await on_topic(call, work)
    if changes and name.partition < 0:
        await restorations_of(call).forget(name)


def check_backlog(topic: Topic) -> None:
    """Raise MetadataRefusedError if the backlog of a topic is larger than its quota: its producers would be refused, or
    its oldest messages given up at once."""
    quota = quotas_of(topic).storage
    if quota.limit_bytes >= 0 and not is_system_topic(topic.name) and is_too_large(size_of(topic), quota):
        raise MetadataRefusedError(
            f"{topic.name.full} has a backlog of {size_of(topic)} bytes, and its quota is {quota.limit_bytes}: raise "
            "the quota, then restore it again"
        )


async def check_age(topic: Topic) -> None:
    """Raise MetadataRefusedError if the oldest messages of a topic would be given up, or its producers refused, at
    once because of their age: publish times are those of the backup."""
    held = topic.policies
    if held is None or is_system_topic(topic.name):
        return
    limits = {"message TTL": held.value(MESSAGE_TTL)}
    if topic.context.options.quota_precise_age:  # the other quota counts from the end of a ledger, which is new
        limits["backlog quota of age"] = quotas_of(topic).age.limit_s
    for what, limit_s in limits.items():
        try:
            found = await older_than(topic, limit_s) if limit_s > 0 else None
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
        if found is not None:
            raise MetadataRefusedError(
                f"{topic.name.full} has messages in its backlog, up to {found}, that are older than its {what} of "
                f"{limit_s} seconds: raise it, or restore it again with --expire, with which it holds for them"
            )


async def _change_properties(topic: Topic, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    try:
        await topic.ledger.update_properties(change)
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error


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
