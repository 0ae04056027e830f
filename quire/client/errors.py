"""Errors between a client and its brokers, and of entries it reads. Each class says whether it is permanent or
passing."""

from __future__ import annotations

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.PulsarApi_pb2 import ServerError

PASSING_CODES = frozenset(
    (
        pb.UnknownError,
        pb.MetadataError,
        pb.PersistenceError,
        pb.ServiceNotReady,
        pb.TooManyRequests,
        pb.ConsumerNotFound,
        # Whoever is in the way may be a dying process, or our own last connection.
        pb.ConsumerBusy,
        pb.ProducerBusy,
    )
)
"""Errors that another try, after a new lookup, may not meet. Source: what the official clients retry; they give up at
once where somebody else is in the way."""


class ClientError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: bool = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class ConnectionLostError(ClientError):
    """The connection ended, or was never made.

    Passing: the client reconnects by itself, so a caller sees this only as the cause of a ServiceUnavailableError."""

    passing = True


class NoCredentialsError(ClientError):
    """The client's credentials cannot be read. Permanent until they can: the text names the file, never its content."""


class ClosedError(ConnectionLostError):
    """The client, reader, producer or subscription was closed by its owner. Permanent: open another."""

    passing = False


class TopicNotFoundError(ClientError):
    """The topic, or its namespace, does not exist, and the request does not create it. Permanent."""


class NotAllowedError(ClientError):
    """The broker's policy forbids the request, or the broker does not support it. Permanent."""


class ConsumerBusyError(ClientError):
    """Another consumer held the subscription for the whole operation timeout. Final: ask again when that one has
    left."""


class ServiceUnavailableError(ClientError):
    """Retries of a passing error did not succeed before the deadline. The text names the topic and the last cause.

    Passing: retry when the brokers are back."""

    passing = True


class ServerRefusedError(ClientError):
    """A broker refused, for a reason that has no class of its own here. Final, except for the codes in
    PASSING_CODES."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{error_name(code)}: {message}")
        self.passing = code in PASSING_CODES
        self.code = code
        """The wire's ServerError."""
        self.message = message
        """Error text of the broker."""


class CorruptEntryError(ClientError):
    """An entry has an invalid checksum, metadata, batch or compression. Permanent for that entry, which the text
    names."""


class EncryptedEntryError(ClientError):
    """An entry's payload is encrypted, and this client has no keys. Permanent for that entry."""


def error_name(code: int) -> str:
    """Return the protocol's name of an error code.

    >>> error_name(6), error_name(999)
    ('ServiceNotReady', 'error 999')
    """
    try:
        return str(ServerError.Name(code))
    except ValueError:
        return f"error {code}"
