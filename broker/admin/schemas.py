"""Schemas of a topic. Any broker answers; the topic need not exist, its namespace has to.

GET      {schemas}/schema                 {"version":0,"type":"AVRO","timestamp":...,"data":"...","properties":{}}; 404
GET      {schemas}/schema/{version}       the same
GET      {schemas}/schemas                {"getSchemaResponses":[...]}: the versions that count
GET      {schemas}/metadata               {"info":{"ledgerId":1,"entryId":0,"version":0},"index":[...]}; 204 none
POST     {schemas}/schema                 {"version":{"version":0}}; 409 incompatible, 422 no schema of its type
POST     {schemas}/compatibility          202 {"compatibility":true,"schemaCompatibilityStrategy":"FULL"}; 422
POST     {schemas}/version                {"version":0}; -1: the topic has no such schema
DELETE   {schemas}/schema?force=          {"version":1}: that of the tombstone; -1 with force, which deletes everything

`{schemas}` stands for /admin/v2/schemas/{tenant}/{namespace}/{topic}. Body of POST:
{"type":"AVRO","schema":"...","properties":{}}. The text of a schema of pairs is {"key":...,"value":...}.
A schema that is posted is added where isAllowAutoUpdateSchema is false, too.

Source: Pulsar's SchemasResource, SchemasResourceBase. There, a schema that is not compatible is a 500 of compatibility.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError
from broker.admin.openapi.parameters import FORCE, INT64_MAX
from broker.admin.requests import PROPERTIES, AdminCall
from broker.admin.resource import AcceptedAnswer, answer
from broker.errors import IncompatibleSchemaError, InvalidSchemaError, NoSchemaError
from broker.topics.schemas import key_value
from broker.topics.schemas.key_value import KeyValueError
from broker.topics.schemas.registry import VersionPlace
from broker.topics.schemas.schema import SCHEMA_BYTES_MAX, Schema, SchemaType, Version
from quire.service.web.parameters import PathNumber
from quire.service.web.shapes import OneText, Record, Text
from quire.wire.pulsar.names import TopicName

_VERSION = PathNumber("version", "Version of a schema.", -INT64_MAX, INT64_MAX)
_BODY = Record(
    {"type": OneText(tuple(SchemaType.__members__)), "schema": Text(), "properties": PROPERTIES}, needed=("type",)
)
BODY_BYTES_MAX = 2 * SCHEMA_BYTES_MAX
"""Maximum bytes of a body: a definition that is escaped is longer."""


async def get(call: AdminCall) -> Response:
    name = await _topic(call)
    return _answer(name, await call.administration.schemas.newest(name))


async def get_version(call: AdminCall) -> Response:
    name, number = await _topic(call), call.number(_VERSION)
    return _answer(name, await call.administration.schemas.version(name, number))


async def get_all(call: AdminCall) -> Response:
    name = await _topic(call)
    found = await call.administration.schemas.versions(name)
    return answer({"getSchemaResponses": [_as_json(each) for each in found]})


async def metadata(call: AdminCall) -> Response | None:
    found = await call.administration.schemas.places(await _topic(call))
    if not found:
        return None
    return answer({"info": _place(found[-1]), "index": [_place(each) for each in found]})


async def post(call: AdminCall) -> Response:
    name, schema = await _topic(call), await _schema(call)
    schemas = call.administration.schemas
    rules = (await schemas.rules(name))._replace(auto_update=True)
    return answer({"version": {"version": await schemas.register(name, schema, rules)}})


async def compatibility(call: AdminCall) -> AcceptedAnswer:
    name, schema = await _topic(call), await _schema(call)
    schemas = call.administration.schemas
    strategy = (await schemas.rules(name)).strategy
    compatible = True
    try:
        await schemas.check_compatible(name, schema, strategy)
    except InvalidSchemaError:
        raise
    except IncompatibleSchemaError:
        compatible = False
    value = {"compatibility": compatible, "schemaCompatibilityStrategy": strategy.value}
    return AcceptedAnswer(value)


async def version(call: AdminCall) -> Response:
    name, schema = await _topic(call), await _schema(call)
    return answer({"version": await call.administration.schemas.find_version(name, schema)})


async def delete(call: AdminCall) -> Response:
    name, force = await _topic(call), call.flag(FORCE)
    schemas = call.administration.schemas
    if force:
        await schemas.delete_all(name)
        return answer({"version": -1})
    return answer({"version": await schemas.delete(name)})


async def _topic(call: AdminCall) -> TopicName:
    """Return the topic, whose namespace exists. Raises TopicNotFoundError."""
    name = call.topic()
    await call.administration.check_namespace(name)
    return name


async def _schema(call: AdminCall) -> Schema:
    """Return the schema of a body."""
    body = await call.json(BODY_BYTES_MAX)
    given = _BODY.check(body, "a schema", MalformedRequestError)
    kind, text = given["type"], given.get("schema", "")
    try:
        data = key_value.from_text(text) if kind == SchemaType.KEY_VALUE.name else text.encode()
    except KeyValueError as error:
        raise InvalidSchemaError(str(error)) from error
    return Schema(SchemaType[kind], data, given.get("properties", {}))


def _answer(name: TopicName, found: Version | None) -> Response:
    if found is None:
        raise NoSchemaError(f"Schema not found: {name.full} has none, or not that version")
    return answer(_as_json(found))


def _as_json(found: Version) -> dict[str, Any]:
    schema = found.schema
    if schema.type is SchemaType.KEY_VALUE:
        try:
            text = key_value.to_text(schema)
        except KeyValueError as error:
            raise InvalidSchemaError(f"version {found.number} cannot be shown: {error}") from error
    else:
        text = schema.data.decode(errors="replace")
    return {
        "version": found.number,
        "type": schema.type.name,
        "timestamp": found.timestamp_ms,
        "data": text,
        "properties": dict(schema.properties),
    }


def _place(found: VersionPlace) -> dict[str, int]:
    return {"ledgerId": found.ledger_id, "entryId": found.entry_id, "version": found.number}
