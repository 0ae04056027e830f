"""Refusals by name of commands and of fields of PRODUCER and SUBSCRIBE that are not served (pure)."""

from __future__ import annotations

from broker import replies
from broker.errors import NotAllowedError
from quire.wire.pulsar import PulsarApi_pb2 as pb

_NOTHING_TO_CHECK = frozenset((pb.Schema.Type.Value("None"), pb.Schema.String, pb.Schema.AutoConsume))
"""Schema types with which clients of a topic cannot contradict each other: bytes, text, any."""


def check_schema(topic: str, schema: pb.Schema) -> None:
    """Raise NotAllowedError if the schema would have to be registered and compared with those of other clients."""
    if schema.type not in _NOTHING_TO_CHECK:
        kind = pb.Schema.Type.Name(schema.type)
        raise NotAllowedError(
            f"{topic}: a schema of type {kind} is not served, because nothing would check that the topic's "
            "clients agree on it: "
            "use Schema.BYTES or Schema.STRING, and encode in the application"
        )


def failed(command: pb.BaseCommand, code: pb.ServerError, message: str) -> bytes:
    """Return a failure in the reply type that the client waits for."""
    kind = command.type
    if kind == pb.BaseCommand.PARTITIONED_METADATA:
        return replies.partitions_failed(command.partitionMetadata.request_id, code, message)
    if kind == pb.BaseCommand.LOOKUP:
        return replies.lookup_failed(command.lookupTopic.request_id, code, message)
    return replies.own_error(command, code, message)


def refuse(command: pb.BaseCommand) -> bytes:
    """Return the protocol's own error for a command that is not served.

    There are no schemas. A request for one is served and finds none, on which AUTO_CONSUME and AUTO_PRODUCE of Java
    continue."""
    if command.type == pb.BaseCommand.GET_SCHEMA:
        return failed(command, pb.TopicNotFound, f"topic {command.getSchema.topic} has no schema")
    name = pb.BaseCommand.Type.Name(command.type)
    return failed(command, pb.NotAllowedError, f"{name} is not served")
