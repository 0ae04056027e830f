"""Errors of the admin REST: refusals of the REST layer with their statuses, and one table for errors of the broker.

Every unsuccessful answer has the body {"reason": "..."}. Statuses are the original's.
Source: the annotations and handlers of Pulsar's PersistentTopics, PersistentTopicsBase, Namespaces and AdminResource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from broker.errors import (
    AuthorizationError,
    BrokerError,
    CompactionRunningError,
    ConsumerBusyError,
    IncompatibleSchemaError,
    InvalidSchemaError,
    InvalidTopicError,
    MetadataRefusedError,
    MetadataUnavailableError,
    NoRoomError,
    NoSchemaError,
    NoSuchMessageError,
    NotAllowedError,
    NothingExpiredError,
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
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""

    status = 500


class RedirectError(AdminError):
    """Another broker answers this. The text is its URL, to which the client is redirected."""

    status = 307


class ForbiddenError(AdminError):
    """The request names something this cluster does not have, or that may not be named here. Permanent."""

    status = 403


class NotAuthorizedError(AdminError):
    """The role of the request is not permitted to do this, whether or not it exists. Permanent."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NotThereError(AdminError):
    """There is no such cluster, broker or policy. Permanent."""

    status = 404


class NotPermittedError(AdminError):
    """The configuration does not allow it. Permanent."""

    status = 405


class ExistsError(AdminError):
    """One of that name exists already. Permanent."""

    status = 409


class StateConflictError(AdminError):
    """The stored state is another than the request assumes. Permanent: read it again."""

    status = 409


class NotEmptyError(AdminError):
    """Something that others need is not deleted. Passing: delete the others first."""

    passing = True

    status = 409


class PreconditionError(AdminError):
    """Invalid value. Permanent."""

    status = 412


class MalformedRequestError(AdminError):
    """A parameter or body that cannot be parsed. Permanent: correct the request."""

    status = 400


class InvalidNameInPathError(AdminError):
    """The path contains an invalid tenant, namespace, topic or subscription name. Permanent."""

    status = 412


class BodyTooLargeError(AdminError):
    """The body is longer than any request of this API needs. Permanent."""

    status = 413


class MediaTypeError(AdminError):
    """The body is declared to be something other than JSON. Permanent."""

    status = 415


class NotServedError(AdminError):
    """The original serves this request, Quire does not. Permanent."""

    status = 501


class OverloadedError(AdminError):
    """The limit of concurrent requests is reached. Passing: retry."""

    passing = True

    status = 503


STATUSES: Statuses = {
    TopicNotFoundError: 404,
    SubscriptionNotFoundError: 404,
    UnsupportedPoliciesError: 412,
    NotAllowedError: 405,
    AuthorizationError: 403,
    PartitionCountError: 406,
    TopicExistsError: 409,
    SubscriptionExistsError: 409,
    NamespaceExistsError: 409,
    NamespaceBusyError: 409,
    NothingExpiredError: 409,
    CompactionRunningError: 409,
    NoSuchMessageError: 404,
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
    NoSchemaError: 404,
    InvalidSchemaError: 422,
    IncompatibleSchemaError: 409,
    MetadataUnavailableError: 503,
}


def status_of(error: BrokerError, special: Statuses) -> int:
    """Return the status of an error: from `special`, the exceptions of one resource, or else from the table, by nearest
    class; 500 if neither has one."""
    for statuses in (special, STATUSES):
        for each in type(error).__mro__:
            if (status := statuses.get(each)) is not None:
                return status
    return 500
