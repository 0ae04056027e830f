"""Checks (pure) of a schema by itself, and against those that a topic has.

A definition may be large: whoever calls this on the event loop looks at its size first (SMALL_BYTES).

Source: Pulsar's SchemaDataValidator, SchemaRegistryServiceImpl (checkCompatible, getSchemaVersionBySchemaData),
AvroSchemaBasedCompatibilityCheck, JsonSchemaCompatibilityCheck, KeyValueSchemaCompatibilityCheck,
ProtobufNativeSchemaCompatibilityCheck, ExternalSchemaCompatibilityCheck. Definitions of type JSON are Avro, as with
schemaJsonAllowLegacyJacksonFormat=false.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.topics.schemas import avro_schema, key_value
from broker.topics.schemas.avro_resolution import TooManyPairsError, why_unreadable
from broker.topics.schemas.avro_schema import AvroSchemaError, AvroType
from broker.topics.schemas.key_value import KeyValueError
from broker.topics.schemas.protobuf_native import ProtobufNativeError, root_message
from broker.topics.schemas.schema import (
    DEFINED_IN_AVRO,
    PRIMITIVE,
    SCHEMA_BYTES_MAX,
    Schema,
    SchemaType,
    Version,
)
from broker.topics.schemas.strategies import Strategy

SMALL_BYTES: Final = 1 << 10
"""Definitions of so many bytes in all are checked in a step of the event loop, within some 5 ms."""

_NOTHING_TO_SAY: Final = frozenset((SchemaType.NONE, SchemaType.BYTES, SchemaType.EXTERNAL))
_COMPARED_AS_AVRO: Final = frozenset((SchemaType.AVRO, SchemaType.JSON))


def why_invalid(schema: Schema) -> str:
    """Return why this is no valid schema of its type; "" if it is."""
    kind, data = schema.type, schema.data
    if len(data) > SCHEMA_BYTES_MAX:
        return f"the definition has {len(data)} bytes; at most {SCHEMA_BYTES_MAX} are accepted"
    try:
        if kind in DEFINED_IN_AVRO:
            if avro_schema.parse(data).kind == "union" and kind is SchemaType.AVRO:
                return "a schema of type AVRO cannot be a union"
        elif kind is SchemaType.PROTOBUF_NATIVE:
            root_message(data)
        elif kind is SchemaType.STRING:
            if data not in (b"", b"null"):  # the Python client sends null
                return "a schema of type STRING has no definition"
        elif kind in PRIMITIVE:
            if data:
                return f"a schema of type {kind.name} has no definition"
        elif kind is SchemaType.KEY_VALUE:
            for part in key_value.split(schema):
                if why := why_invalid(part):
                    return why
        elif kind not in _NOTHING_TO_SAY:
            return f"{kind.name} is a type of clients, and no type of a topic"
    except (AvroSchemaError, KeyValueError, ProtobufNativeError) as error:
        return f"invalid definition of a schema of type {kind.name}: {error}"
    return ""


def trimmed(versions: Sequence[Version]) -> list[Version]:
    """Return the versions that count: those after the last tombstone."""
    last = max((place for place, each in enumerate(versions) if each.deleted), default=-1)
    return list(versions[last + 1 :])


def find_same(versions: Iterable[Version], schema: Schema) -> Version | None:
    """Return the first version that says the same.

    Of a type that is defined in Avro: the same types, whatever the spaces, the order of keys and the documentation."""
    wanted = _parsed(schema) if schema.type in DEFINED_IN_AVRO else None
    for each in versions:
        found = each.schema
        if found.is_same(schema):
            return each
        if wanted is not None and found.type is schema.type:
            there = _parsed(found)
            if there is not None and avro_schema.same(wanted, there):
                return each
    return None


def why_incompatible(versions: Sequence[Version], schema: Schema, strategy: Strategy) -> str:
    """Return why a schema does not go with versions of a topic, which are those that count; "" if it does."""
    if strategy is Strategy.ALWAYS_COMPATIBLE or not versions:
        return ""
    compared = versions if strategy.is_transitive else versions[-1:]
    for each in compared:
        if each.schema.type is not schema.type:
            return f"the topic has a schema of type {each.schema.type.name}, this one is {schema.type.name}"
    others = [each.schema for each in compared if strategy.is_transitive or not each.schema.is_same(schema)]
    try:
        return _why_incompatible(others, schema, strategy)
    except (AvroSchemaError, KeyValueError, ProtobufNativeError, TooManyPairsError) as error:
        return str(error)


def consumer_strategy(strategy: Strategy) -> Strategy:
    """Return the strategy by which a consumer's schema is compared: it has to read what is there.

    Source: SchemaRegistryServiceImpl.checkConsumerCompatibility."""
    if strategy in (Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL):
        return Strategy.BACKWARD
    return strategy


def _why_incompatible(others: Sequence[Schema], schema: Schema, strategy: Strategy) -> str:
    """Compare with schemas of the same type. Raises AvroSchemaError, KeyValueError, ProtobufNativeError,
    TooManyPairsError."""
    if not others or schema.type is SchemaType.EXTERNAL:
        return ""
    if strategy in (Strategy.ALWAYS_INCOMPATIBLE, Strategy.UNDEFINED):
        return f"the strategy is {strategy.value}"
    if schema.type in _COMPARED_AS_AVRO:
        return _why_unreadable(others, schema, strategy)
    if schema.type is SchemaType.PROTOBUF_NATIVE:
        wanted = root_message(schema.data)
        for each in others:
            if (found := root_message(each.data)) != wanted:
                return f"the message type of the topic is {found}, and not {wanted}"
        return ""
    return _why_pairs_differ(others, schema, strategy) if schema.type is SchemaType.KEY_VALUE else ""


def _why_unreadable(others: Sequence[Schema], schema: Schema, strategy: Strategy) -> str:
    new = avro_schema.parse(schema.data)
    for each in others:
        old = avro_schema.parse(each.data)
        if strategy.reads_older and (why := why_unreadable(old, new)):
            return f"what the topic's schema wrote cannot be read with the new one ({strategy.value}): {why}"
        if strategy.is_read_by_older and (why := why_unreadable(new, old)):
            return f"what the new schema writes cannot be read with the topic's ({strategy.value}): {why}"
    return ""


def _why_pairs_differ(others: Sequence[Schema], schema: Schema, strategy: Strategy) -> str:
    new = key_value.split(schema)
    pairs = [key_value.split(each) for each in others]
    for part, what in enumerate(("key", "value")):
        for each in pairs:
            if each[part].type is not new[part].type:
                return f"the type of the {what} is {each[part].type.name} on the topic, and not {new[part].type.name}"
        if why := _why_incompatible([each[part] for each in pairs], new[part], strategy):
            return f"{what}: {why}"
    return ""


def _parsed(schema: Schema) -> AvroType | None:
    try:
        return avro_schema.parse(schema.data)
    except AvroSchemaError:
        return None  # one that a broker of the original accepted
