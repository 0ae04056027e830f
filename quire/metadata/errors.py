"""What can go wrong with metadata. Each class says final or passing, and what to do."""

from __future__ import annotations

from typing import ClassVar


class MetadataError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""

    def __init__(self, message: str, *, index: int = 0) -> None:
        super().__init__(message)
        self.index = index
        """Which op of a multi failed; 0 for a single call."""


class NoNodeError(MetadataError):
    """The node, or the parent of a new node, does not exist. Final for this call."""


class NodeExistsError(MetadataError):
    """There is a node at that path already. Final for this call."""


class BadVersionError(MetadataError):
    """Somebody changed the node since it was read. Read again and decide anew."""


class NotEmptyError(MetadataError):
    """A node with children cannot be deleted. Final for this call."""


class SessionExpiredError(MetadataError):
    """The session is gone, and its ephemeral nodes with it. Final for this store object."""


class MetadataUnavailableError(MetadataError):
    """The service cannot be reached; whether a write happened is not known. Passing: read, then retry."""

    passing = True


class InvalidPathError(MetadataError):
    """The path is not one a node can have. Final; our mistake or bad input that should have been refused earlier."""


class MalformedMetadataError(MetadataError):
    """A stored value is damaged or breaks an invariant of its kind. Final: a human must look."""


class UnsupportedLayoutError(MetadataError):
    """The data was written by a newer version, or in a layout that is not served. Final: use the program that wrote it."""


class NotAllowedError(MetadataError):
    """The service refuses these credentials this call. Final: an operator must mend rights or credentials."""


class ValueTooLargeError(MetadataError):
    """The request is larger than the service takes. Final; nothing was sent."""


class InvalidConnectStringError(MetadataError):
    """The text does not say how to reach a metadata service. Final: the configuration is wrong."""


class ClusterRefusedError(MetadataError):
    """What was asked would hurt a cluster in use, or another than was meant. Final: see what the message names."""
