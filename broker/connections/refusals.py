"""Refusals by name of what is not served: whole commands, and fields of PRODUCER and SUBSCRIBE (pure)."""

from __future__ import annotations

from broker import replies
from broker.errors import NotAllowedError
from quire.wire.pulsar import PulsarApi_pb2 as pb

_NOTHING_TO_CHECK = frozenset((pb.Schema.Type.Value("None"), pb.Schema.String, pb.Schema.AutoConsume))
"""Bytes, text, and whatever comes: with these alone, no two clients of a topic can contradict each other."""


def check_schema(topic: str, schema: pb.Schema) -> None:
    """NotAllowedError if the schema would have to be registered and compared with those of the topic's other clients."""
    if schema.type not in _NOTHING_TO_CHECK:
        kind = pb.Schema.Type.Name(schema.type)
        raise NotAllowedError(
            f"{topic}: a schema of type {kind} is not served, because nothing would check that the topic's clients agree on it: "
            "use Schema.BYTES or Schema.STRING, and encode in the application"
        )


def failed(command: pb.BaseCommand, code: pb.ServerError, message: str) -> bytes:
    """A failure, in the reply type that the client waits for."""
    kind = command.type
    if kind == pb.BaseCommand.PARTITIONED_METADATA:
        return replies.partitions_failed(command.partitionMetadata.request_id, code, message)
    if kind == pb.BaseCommand.LOOKUP:
        return replies.lookup_failed(command.lookupTopic.request_id, code, message)
    return replies.own_error(command, code, message)


def refuse(command: pb.BaseCommand) -> bytes:
    """The protocol's own error for what is not served. There are no schemas yet: to ask for one is served, and finds none,
    which is what AUTO_CONSUME and AUTO_PRODUCE of Java go on with."""
    if command.type == pb.BaseCommand.GET_SCHEMA:
        return failed(command, pb.TopicNotFound, f"topic {command.getSchema.topic} has no schema")
    name = pb.BaseCommand.Type.Name(command.type)
    return failed(command, pb.NotAllowedError, f"{name} is not served")
