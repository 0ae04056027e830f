"""What a broker says no with. Each class names the ServerError the client gets and whether the client goes on."""

from __future__ import annotations

from typing import ClassVar

from quire.metadata.errors import MetadataError
from quire.wire.pulsar import PulsarApi_pb2 as pb


class BrokerError(Exception):
    """Root: catching it catches every failure of the package. `code` is what goes on the wire."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""

    code: pb.ServerError = pb.UnknownError


class ServiceNotReadyError(BrokerError):
    """Not the owner, being loaded, fenced or closing. Passing: the client looks up again and retries."""

    passing = True

    code = pb.ServiceNotReady


class TopicNotFoundError(BrokerError):
    """No such namespace, or no such topic and it may not be created. Final for the client."""

    code = pb.TopicNotFound


class InvalidTopicError(BrokerError):
    """The name is not a topic name. Final."""

    code = pb.InvalidTopicName


class ProducerBusyError(BrokerError):
    """A living producer has that name. Final."""

    code = pb.ProducerBusy


class NoRoomError(BrokerError):
    """The disk is full: nothing is published until there is room. Official clients fail what waits to be sent with it, and try
    again to connect their producers."""

    code = pb.ProducerBlockedQuotaExceededException


class ConsumerBusyError(BrokerError):
    """The subscription is taken, or of another type. Final."""

    code = pb.ConsumerBusy


class ConsumerAssignError(BrokerError):
    """Key_Shared: the ranges or the mode do not fit those of the connected consumers. Final."""

    code = pb.ConsumerAssignError


class NotAllowedError(BrokerError):
    """A policy or a missing feature forbids it. Final."""

    code = pb.NotAllowedError


class UnsupportedPoliciesError(NotAllowedError):
    """What is stored of the namespace or the topic asks for what is not obeyed here. Final. HTTP: 412."""


class MetadataUnavailableError(BrokerError):
    """The metadata store cannot be asked now. Passing; unlike ServiceNotReady it does not make clients drop the
    connection they asked on."""

    passing = True

    code = pb.MetadataError


class TopicTerminatedError(BrokerError):
    """The topic takes no more messages. Final; what is in it can be read."""

    code = pb.TopicTerminatedError


class BeingDeletedError(MetadataUnavailableError):
    """The topic is on its way out. Passing: soon there is none of that name, and it may be made anew. HTTP: 503, and 409 for
    whoever would make it."""


class MetadataRefusedError(BrokerError):
    """The request makes no sense in this state."""

    code = pb.MetadataError


class ConsumerNotFoundError(BrokerError):
    """The consumer that is asked about is not on this connection. Final."""

    code = pb.ConsumerNotFound


class TopicExistsError(BrokerError):
    """There is a topic of that name, partitioned or not, or a partition of what would be made. Final. HTTP: 409."""

    code = pb.NotAllowedError


class TopicBusyError(BrokerError):
    """Producers or consumers are connected to the topic, and it was not to be done by force. Passing. HTTP: 412."""

    passing = True

    code = pb.MetadataError


class NotPartitionedError(TopicNotFoundError):
    """There is no partitioned topic of that name. Final. HTTP: 404."""


class IsPartitionedError(NotAllowedError):
    """What was asked can be done with one partition, not with a partitioned topic as a whole. Final. HTTP: 405."""


class PartitionCountError(NotAllowedError):
    """So many partitions cannot be: fewer than there are, none, or more than the configuration allows. Final. HTTP: 406."""


class SubscriptionExistsError(BrokerError):
    """There is a subscription of that name. Final. HTTP: 409."""

    code = pb.ConsumerBusy


class SubscriptionNotFoundError(BrokerError):
    """There is no subscription of that name. Final. HTTP: 404."""

    code = pb.SubscriptionNotFound


class SubscriptionBusyError(BrokerError):
    """The subscription has consumers, and it was not to be done by force. Passing. HTTP: 412."""

    passing = True

    code = pb.ConsumerBusy


class _Translated:
    """No generator: each topic that is loaded comes by ten times."""

    __slots__ = ("_what",)

    def __init__(self, what: object) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, MetadataError):
            raise MetadataUnavailableError(f"{self._what}: {error}") from error


def translated(what: object) -> _Translated:
    """Failures of the metadata store inside, as MetadataUnavailableError."""
    return _Translated(what)
