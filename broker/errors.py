"""Errors a broker returns to its clients. Each class names the ServerError on the wire and whether a retry can help."""

from __future__ import annotations

from typing import ClassVar

from quire.metadata.errors import MetadataError
from quire.wire.pulsar import PulsarApi_pb2 as pb


class BrokerError(Exception):
    """Root: catching it catches every failure of the package. `code` is the code on the wire."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""

    code: pb.ServerError = pb.UnknownError


class ServiceNotReadyError(BrokerError):
    """Not the owner, being loaded, fenced or closing. Passing: the client looks up again and retries."""

    passing = True

    code = pb.ServiceNotReady


class TopicNotFoundError(BrokerError):
    """No such namespace, or no such topic and it may not be created. Permanent for the client."""

    code = pb.TopicNotFound


class InvalidTopicError(BrokerError):
    """The name is not a topic name. Permanent."""

    code = pb.InvalidTopicName


class ProducerBusyError(BrokerError):
    """A connected producer has that name. Permanent."""

    code = pb.ProducerBusy


class ProducerFencedError(BrokerError):
    """Another producer has, or had, the topic for itself. Permanent: official clients fail all sends of the
    producer."""

    code = pb.ProducerFenced


class NoRoomError(BrokerError):
    """The disk is full: publishing is blocked until space is free. Official clients fail pending sends with it and
    reconnect their producers."""

    code = pb.ProducerBlockedQuotaExceededException


class ProducerBlockedError(BrokerError):
    """The backlog of the topic is above its quota, and its producers are to wait. Passing: official clients try again,
    and keep what was sent."""

    passing = True

    code = pb.ProducerBlockedQuotaExceededError


class QuotaExceededError(BrokerError):
    """The backlog of the topic is above its quota, and its producers are to fail. Official clients fail pending sends
    with it."""

    code = pb.ProducerBlockedQuotaExceededException


class ConsumerBusyError(BrokerError):
    """The subscription is taken, or of another type. Permanent."""

    code = pb.ConsumerBusy


class ConsumerAssignError(BrokerError):
    """Key_Shared: the ranges or the mode do not fit those of the connected consumers. Permanent."""

    code = pb.ConsumerAssignError


class NotAllowedError(BrokerError):
    """A policy or a missing feature forbids it. Permanent."""

    code = pb.NotAllowedError


class AuthorizationError(BrokerError):
    """The role of the connection is not permitted to do this, whether or not it exists. Permanent."""

    code = pb.AuthorizationError


class UnsupportedPoliciesError(NotAllowedError):
    """Stored policies of the namespace or the topic ask for something this broker does not obey. Permanent. HTTP:
    412."""


class MetadataUnavailableError(BrokerError):
    """The metadata store is unavailable. Passing. Unlike ServiceNotReady, it does not make clients close the
    connection."""

    passing = True

    code = pb.MetadataError


class TopicTerminatedError(BrokerError):
    """The topic accepts no more messages. Permanent; its messages can be read."""

    code = pb.TopicTerminatedError


class BeingDeletedError(MetadataUnavailableError):
    """The topic is being deleted. Passing: after that, the name may be used again. HTTP: 503, and 409 for its
    creation."""


class MetadataRefusedError(BrokerError):
    """The request is invalid in this state, or the stored metadata cannot be read."""

    code = pb.MetadataError


class IncompatibleSchemaError(BrokerError):
    """The schema does not go with the topic's, by the strategy that holds for it. Permanent. HTTP: 409."""

    code = pb.IncompatibleSchema


class InvalidSchemaError(IncompatibleSchemaError):
    """The definition is none of its type. Permanent. HTTP: 422."""


class NoSchemaError(BrokerError):
    """The topic has no schema, or not that version. Permanent. HTTP: 404."""

    code = pb.TopicNotFound


class ConsumerNotFoundError(BrokerError):
    """The requested consumer is not on this connection. Permanent."""

    code = pb.ConsumerNotFound


class TopicExistsError(BrokerError):
    """There is a topic of that name, partitioned or not, or a partition of the topic to be created. Permanent. HTTP:
    409."""

    code = pb.NotAllowedError


class TopicBusyError(BrokerError):
    """Producers or consumers are connected to the topic, and `force` was not given. Passing. HTTP: 412."""

    passing = True

    code = pb.MetadataError


class NotPartitionedError(TopicNotFoundError):
    """There is no partitioned topic of that name. Permanent. HTTP: 404."""


class IsPartitionedError(NotAllowedError):
    """The operation works on one partition, not on a partitioned topic as a whole. Permanent. HTTP: 405."""


class PartitionCountError(NotAllowedError):
    """Invalid partition count: fewer than there are, none, or more than the configuration allows. Permanent. HTTP:
    406."""


class SubscriptionExistsError(BrokerError):
    """There is a subscription of that name. Permanent. HTTP: 409."""

    code = pb.ConsumerBusy


class SubscriptionNotFoundError(BrokerError):
    """There is no subscription of that name. Permanent. HTTP: 404."""

    code = pb.SubscriptionNotFound


class SubscriptionBusyError(BrokerError):
    """The subscription has consumers, and `force` was not given. Passing. HTTP: 412."""

    passing = True

    code = pb.ConsumerBusy


class NothingExpiredError(BrokerError):
    """No messages of a subscription were expired, because none are, or because an expiry is under way. Passing. HTTP:
    409."""

    passing = True


class NoSuchMessageError(BrokerError):
    """There is no message at that place. Permanent for that place. HTTP: 404."""


class CompactionRunningError(BrokerError):
    """The topic is being compacted already. Passing. HTTP: 409."""

    passing = True


class _Translated:
    """Context manager of `translated`; not a generator, since each loaded topic passes here ten times."""

    __slots__ = ("_what",)

    def __init__(self, what: object) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, MetadataError):
            raise MetadataUnavailableError(f"{self._what}: {error}") from error


def translated(what: object) -> _Translated:
    """Translate failures of the metadata store inside to MetadataUnavailableError."""
    return _Translated(what)
