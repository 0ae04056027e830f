"""Errors of metadata. Each class says whether a retry can help, and what to do."""

from __future__ import annotations

from typing import ClassVar


class MetadataError(Exception):
    """Root of all errors of this package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""

    def __init__(self, message: str, *, index: int = 0) -> None:
        super().__init__(message)
        self.index = index
        """Index of the failed op of a multi; 0 for a single call."""


class NoNodeError(MetadataError):
    """The node, or the parent of a new node, does not exist. Final for this call."""


class NodeExistsError(MetadataError):
    """There already is a node at that path. Final for this call."""


class BadVersionError(MetadataError):
    """The node was changed since it was read: read it again and decide again. Final for this call."""


class NotEmptyError(MetadataError):
    """A node with children cannot be deleted. Final for this call."""


class SessionExpiredError(MetadataError):
    """The session has ended, and its ephemeral nodes are gone. Final for this store object."""


class MetadataUnavailableError(MetadataError):
    """The service cannot be reached; the outcome of a write is unknown. Passing: read, then retry."""

    passing = True


class InvalidPathError(MetadataError):
    """The path is invalid for a node. Final: our bug, or bad input that should have been refused earlier."""


class MalformedMetadataError(MetadataError):
    """A stored value is damaged or breaks an invariant of its kind. Final: an operator must look."""


class UnsupportedLayoutError(MetadataError):
    """The data was written by a newer version, or in an unsupported layout. Final: use the program that wrote it."""


class NotAllowedError(MetadataError):
    """The service refuses this call with these credentials. Final: an operator must correct rights or credentials."""


class ValueTooLargeError(MetadataError):
    """The request is larger than the service accepts. Final; nothing was sent."""


class InvalidConnectStringError(MetadataError):
    """The text is not a valid address of a metadata service. Final: the configuration is wrong."""


class ClusterRefusedError(MetadataError):
    """The request would damage a cluster in use, or another cluster than was meant. Final: see the message."""
