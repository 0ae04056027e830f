"""Schemas of clients: of producers and consumers that connect, GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from broker import replies
from broker.connections.connection import Connection
from broker.connections.lookups import parse_topic
from broker.errors import IncompatibleSchemaError, InvalidSchemaError, NoSchemaError
from broker.topics.exclusive import AnyTopic
from broker.topics.loaded_topics import Topics
from broker.topics.non_persistent.loaded import NonPersistentTopics
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.schemas.registry import Schemas
from broker.topics.schemas.schema import (
    Schema,
    SchemaType,
    from_wire,
    to_wire,
    version_bytes,
    version_number,
    why_too_large,
)
from broker.topics.schemas.stored import schema_id
from broker.topics.schemas.strategies import SchemaRules
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import PERSISTENT

NO_VERSION = b""


class SchemaRequests:
    """Requests for schemas of topics."""

    def __init__(self, topics: Topics, direct: NonPersistentTopics) -> None:
        self._topics = topics
        self._direct = direct

    async def get(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Answer with the newest version, or the one that is asked for. Any broker answers.

        TopicNotFound is what clients take for "no schema".
        Source: the original's ServerCnx.handleGetSchema."""
        request = command.getSchema
        name = parse_topic(request.topic)
        if not request.HasField("schema_version"):
            found = await self._topics.schemas.newest(name)
        elif not request.schema_version:
            raise IncompatibleSchemaError("an empty version of a schema")
        else:
            found = await self._topics.schemas.version(name, version_number(request.schema_version))
        if found is None:
            raise NoSchemaError(f"topic {name.full} does not exist, or has no such schema")
        sent = to_wire(found, schema_id(name))
        connection.write((replies.schema(request.request_id, sent, version_bytes(found.number)),))

    async def get_or_create(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Answer with the version of a schema on an existing topic, to which it is added if that is allowed."""
        request = command.getOrCreateSchema
        name = parse_topic(request.topic)
        topics = self._topics if name.domain == PERSISTENT else self._direct
        topic: AnyTopic = await topics.get(name, create=False)
        schemas = self._topics.schemas
        version = await _version_of(schemas, topic, _sent(request.schema), await schemas.rules(topic.name))
        connection.write((replies.schema_created(request.request_id, version),))


def _sent(schema: pb.Schema) -> Schema:
    """Return the schema of a command. Raises InvalidSchemaError."""
    if why := why_too_large(schema):
        raise InvalidSchemaError(why)
    return from_wire(schema)


async def version_of_producer(
    schemas: Schemas, topic: AnyTopic, request: pb.CommandProducer, rules: SchemaRules
) -> bytes:
    """Return the version of a producer's schema, which is added to the topic if that is allowed; NO_VERSION without
    one.

    Raises IncompatibleSchemaError, NotAllowedError, NoRoomError, MetadataUnavailableError.
    Source: the original's ServerCnx.tryAddSchema."""
    return await _version_of(schemas, topic, _sent(request.schema) if request.HasField("schema") else None, rules)


async def _version_of(schemas: Schemas, topic: AnyTopic, schema: Schema | None, rules: SchemaRules) -> bytes:
    if schema is not None and schema.type is not SchemaType.NONE:
        return version_bytes(await schemas.register(topic.name, schema, rules, topic.check_open))
    if rules.enforced and await schemas.has_schema(topic.name):
        raise IncompatibleSchemaError(
            f"{topic.name.full} has a schema, and takes no producer without one (schemaValidationEnforced)"
        )
    return NO_VERSION


async def schema_of_consumer(schemas: Schemas, topic: AnyTopic, request: pb.CommandSubscribe) -> None:
    """Check that a consumer can read what is on the topic. To a topic that nothing was ever done with, its schema is
    added.

    Raises as `version_of_producer`. Source: the original's PersistentTopic.addSchemaIfIdleOrCheckCompatible."""
    if not request.HasField("schema"):
        return
    schema = _sent(request.schema)
    if schema.type in (SchemaType.NONE, SchemaType.AUTO_CONSUME):
        return
    rules = await schemas.rules(topic.name)
    if not _is_used(topic) and not await schemas.has_schema(topic.name):
        await schemas.register(topic.name, schema, rules, topic.check_open)
        return
    try:
        await schemas.check_consumer(topic.name, schema, rules.strategy)
    except NoSchemaError as error:
        raise IncompatibleSchemaError(
            f"{topic.name.full} is in use without a schema: a consumer with one of type {schema.type.name} cannot "
            "read it"
        ) from error


def _is_used(topic: AnyTopic) -> bool:
    """Return whether the topic has entries, producers, or consumers that do not take every schema."""
    return (
        bool(topic.producers)
        or (topic.entries_in if isinstance(topic, NonPersistentTopic) else topic.ledger.size) > 0
        or any(not each.takes_any_schema for found in topic.subscriptions.values() for each in found.consumers)
    )
