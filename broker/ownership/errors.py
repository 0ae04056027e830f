"""Errors inside this package. Clients and administrators see classes of `broker.errors`."""

from __future__ import annotations

from broker.errors import BrokerError, ServiceNotReadyError
from quire.wire.pulsar import PulsarApi_pb2 as pb


class NotOwnerError(ServiceNotReadyError):
    """The topic's bundle is not, or no longer, this broker's. Passing: look the topic up again. HTTP: 503."""


class NoBrokerError(ServiceNotReadyError):
    """No broker can take the bundle now. Passing."""


class BeingUnloadedError(BrokerError):
    """The bundle is being moved to another broker, for longer than the caller would wait. Passing: the client stays on
    its connection and looks up again."""

    passing = True

    code = pb.MetadataError


class NoSuchBundleError(BrokerError):
    """The namespace has no bundle of that range. Permanent. HTTP: 404."""

    code = pb.MetadataError


class BundleSplitError(BrokerError):
    """The bundle cannot be split in this way. Permanent. HTTP: 412."""

    code = pb.NotAllowedError


class NamespaceExistsError(BrokerError):
    """There is a tenant or namespace of that name. Permanent. HTTP: 409."""

    code = pb.MetadataError


class NamespaceBusyError(BrokerError):
    """A tenant with namespaces, or a namespace with topics, cannot be deleted. Permanent. HTTP: 409."""

    code = pb.MetadataError


class BundlesChangedError(ServiceNotReadyError):
    """The boundaries of the namespace have changed. Passing: read them, and look up the topic's bundle again."""


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
