"""What can go wrong inside the room; what a client or an administrator sees is a `broker.errors` class."""

from __future__ import annotations

from broker.errors import BrokerError, ServiceNotReadyError
from quire.wire.pulsar import PulsarApi_pb2 as pb


class NotOwnerError(ServiceNotReadyError):
    """The topic's bundle is not this broker's, or not any more. Passing: look the topic up again. HTTP: 503."""


class NoBrokerError(ServiceNotReadyError):
    """No broker can take the bundle now. Passing."""


class BeingUnloadedError(BrokerError):
    """The bundle is on its way to another broker, for longer than the caller would wait. Passing: the client stays on its
    connection and looks up again."""

    passing = True

    code = pb.MetadataError


class NoSuchBundleError(BrokerError):
    """The namespace has no bundle of that range. Final. HTTP: 404."""

    code = pb.MetadataError


class BundleSplitError(BrokerError):
    """The bundle cannot be split like that. Final. HTTP: 412."""

    code = pb.NotAllowedError


class NamespaceExistsError(BrokerError):
    """There is a tenant or namespace of that name. Final. HTTP: 409."""

    code = pb.MetadataError


class NamespaceBusyError(BrokerError):
    """A tenant that has namespaces, or a namespace that has topics, is not deleted. Final. HTTP: 409."""

    code = pb.MetadataError


class BundlesChangedError(ServiceNotReadyError):
    """The boundaries of the namespace are others by now. Passing: read them, and find the topic's bundle anew."""


__all__ = [
    "BeingUnloadedError",
    "BundleSplitError",
    "BundlesChangedError",
    "NamespaceBusyError",
    "NamespaceExistsError",
    "NoBrokerError",
    "NoSuchBundleError",
    "NotOwnerError",
]
