"""What can be wrong with what a client sends. Each class says final or passing, and what to do."""

from __future__ import annotations

from typing import ClassVar


class PulsarWireError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class FrameError(PulsarWireError):
    """The bytes are not frames of this protocol. Final: close the connection."""


class MalformedMetadataError(PulsarWireError):
    """The entry's metadata cannot be read. Final for this entry: it can still be delivered as it is."""


class InvalidNameError(PulsarWireError):
    """Root of the names that are refused. Final: the client has to ask for another name."""


class InvalidTopicNameError(InvalidNameError):
    """Not a name a topic or namespace can have: InvalidTopicName on the wire."""


class UnsupportedTopicNameError(InvalidTopicNameError):
    """A name that Pulsar takes and Quire does not. NotAllowedError on the wire: the C++ and Python clients take InvalidTopicName,
    which they never expect for a name that passed their own check, for passing, and retry until their time-out."""


class InvalidSubscriptionNameError(InvalidNameError):
    """Not a name a subscription can have."""
