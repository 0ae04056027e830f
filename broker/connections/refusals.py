"""Answers to commands that failed or are not served (pure, save that unexpected errors are logged)."""

from __future__ import annotations

from broker import replies
from broker.errors import BrokerError
from quire.service.log import Logger
from quire.wire.pulsar import PulsarApi_pb2 as pb


def failed(command: pb.BaseCommand, code: pb.ServerError, message: str) -> bytes:
    """Return a failure in the reply type that the client waits for."""
    kind = command.type
    if kind == pb.BaseCommand.PARTITIONED_METADATA:
        return replies.partitions_failed(command.partitionMetadata.request_id, code, message)
    if kind == pb.BaseCommand.LOOKUP:
        return replies.lookup_failed(command.lookupTopic.request_id, code, message)
    return replies.own_error(command, code, message)


def failure(command: pb.BaseCommand, error: Exception, log: Logger) -> bytes:
    """Return the answer to a command that raised `error`. Anything but a BrokerError is logged, as our own mistake."""
    if isinstance(error, BrokerError):
        return failed(command, error.code, str(error))
    kind = pb.BaseCommand.Type.Name(command.type)
    log.error("request failed", request=kind, reason=repr(error), exc_info=error)
    return failed(command, pb.UnknownError, f"{kind} failed")


def refuse(command: pb.BaseCommand) -> bytes:
    """Return the protocol's own error for a command that is not served."""
    name = pb.BaseCommand.Type.Name(command.type)
    return failed(command, pb.NotAllowedError, f"{name} is not served")
