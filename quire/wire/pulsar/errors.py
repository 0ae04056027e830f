"""Errors in data sent by clients. Each class says whether a retry can help, and what to do."""

from __future__ import annotations

from typing import ClassVar


class PulsarWireError(Exception):
    """Root of all errors of this package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class FrameError(PulsarWireError):
    """The bytes are not frames of this protocol. Final: close the connection."""


class MalformedMetadataError(PulsarWireError):
    """The entry's metadata cannot be read. Final for this entry, which can still be delivered unchanged."""


class InvalidNameError(PulsarWireError):
    """Root of errors of refused names. Final: the client has to use another name."""


class InvalidTopicNameError(InvalidNameError):
    """Invalid name of a topic or namespace: InvalidTopicName on the wire."""


class UnsupportedTopicNameError(InvalidTopicNameError):
    """A name that Pulsar accepts and Quire does not: NotAllowedError on the wire.

    The C++ and Python clients treat InvalidTopicName, which they never expect for a name that passed their own check,
    as temporary, and retry until their time-out.
    """


class InvalidSubscriptionNameError(InvalidNameError):
    """Invalid name of a subscription."""
