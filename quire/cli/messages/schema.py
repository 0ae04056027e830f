"""Schemas of values, as --value-schema names them. Source: CmdProduce of Pulsar."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from quire.cli.messages.access import FlagsError

if TYPE_CHECKING:
    from quire.wire.pulsar import PulsarApi_pb2 as pb

HELP = "Schema of the values: bytes, string, avro:DEFINITION or json:DEFINITION, the definition as JSON."


def schema_of(text: str) -> pb.Schema | None:
    """Return the schema that a text names; None: values are bytes. Raises FlagsError."""
    from quire.wire.pulsar import PulsarApi_pb2 as pb

    kind, _, definition = text.partition(":")
    if text == "bytes":
        return None
    if text == "string":
        return pb.Schema(name="String", type=pb.Schema.String, schema_data=b"")
    if kind not in ("avro", "json") or not definition:
        raise FlagsError(f"the schema {text!r} is none of: bytes, string, avro:DEFINITION, json:DEFINITION")
    try:
        json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise FlagsError(f"the definition of the {kind} schema is not JSON: {error}") from None
    number = pb.Schema.Avro if kind == "avro" else pb.Schema.Json
    return pb.Schema(name="client", type=number, schema_data=definition.encode())
