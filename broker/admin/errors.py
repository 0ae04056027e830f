"""What the admin REST says no with: the statuses of our own refusals, and one table for those of the broker.

Every answer that is no success has the body {"reason": "..."}. Statuses are the original's.
Source: the annotations and handlers of Pulsar's PersistentTopics, PersistentTopicsBase, Namespaces and AdminResource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from broker.errors import (
    BrokerError,
    ConsumerBusyError,
    InvalidTopicError,
    MetadataRefusedError,
    MetadataUnavailableError,
    NoRoomError,
    NotAllowedError,
    PartitionCountError,
    ProducerBusyError,
    ServiceNotReadyError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
    TopicBusyError,
    TopicExistsError,
    TopicNotFoundError,
    UnsupportedPoliciesError,
)
from broker.ownership.errors import (
    BeingUnloadedError,
    BundleSplitError,
    NamespaceBusyError,
    NamespaceExistsError,
    NoSuchBundleError,
)

Statuses = Mapping[type[BrokerError], int]


class AdminError(Exception):
    """Root: catching it catches every refusal that the REST layer makes by itself. `status` is the answer's."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""

    status = 500


class RedirectError(AdminError):
    """Another broker answers this; the text is where. The client asks there."""

    status = 307


class ForbiddenError(AdminError):
    """It names what the cluster does not have, or may not be named here. Final."""

    status = 403


class NotThereError(AdminError):
    """There is no such cluster, broker or policy. Final."""

    status = 404


class NotPermittedError(AdminError):
    """The configuration does not allow it. Final."""

    status = 405


class ExistsError(AdminError):
    """There is such a one already. Final."""

    status = 409


class NotEmptyError(AdminError):
    """What others need is not deleted. Passing: delete those first."""

    passing = True

    status = 409


class PreconditionError(AdminError):
    """A value that cannot be. Final."""

    status = 412


class MalformedRequestError(AdminError):
    """A parameter or body that cannot be read. Final: ask differently."""

    status = 400


class InvalidNameInPathError(AdminError):
    """The path names no tenant, namespace, topic or subscription that could be. Final."""

    status = 412


class BodyTooLargeError(AdminError):
    """No request of this API needs so long a body. Final."""

    status = 413


class MediaTypeError(AdminError):
    """The body is declared to be something else than JSON. Final."""

    status = 415


class NotServedError(AdminError):
    """The original has this, Quire does not. Final."""

    status = 501


class OverloadedError(AdminError):
    """As many requests are being worked on as may be. Passing: ask again."""

    passing = True

    status = 503


STATUSES: Statuses = {
    TopicNotFoundError: 404,
    SubscriptionNotFoundError: 404,
    UnsupportedPoliciesError: 412,
    NotAllowedError: 405,
    PartitionCountError: 406,
    TopicExistsError: 409,
    SubscriptionExistsError: 409,
    NamespaceExistsError: 409,
    NamespaceBusyError: 409,
    NoSuchBundleError: 404,
    BundleSplitError: 412,
    BeingUnloadedError: 503,
    InvalidTopicError: 412,
    TopicBusyError: 412,
    SubscriptionBusyError: 412,
    ConsumerBusyError: 412,
    ProducerBusyError: 412,
    MetadataRefusedError: 412,
    ServiceNotReadyError: 503,
    NoRoomError: 507,
    MetadataUnavailableError: 503,
}


def status_of(error: BrokerError, special: Statuses) -> int:
    """The status of an answer: what `special`, the exceptions of one resource, or else the table has for the nearest
    class; 500 for what neither has."""
    for statuses in (special, STATUSES):
        for each in type(error).__mro__:
            if (status := statuses.get(each)) is not None:
                return status
    return 500
