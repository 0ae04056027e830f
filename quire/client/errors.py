"""Errors between a client and its brokers, and of entries it reads. Each class says whether it is permanent or
passing."""

from __future__ import annotations

from quire.wire.pulsar.PulsarApi_pb2 import ServerError


class ClientError(Exception):
    """Root: catching it catches every failure of the package."""


class ConnectionLostError(ClientError):
    """The connection ended, or was never made.

    Passing: the client reconnects by itself, so a caller sees this only as the cause of a ServiceUnavailableError."""


class ClosedError(ConnectionLostError):
    """The client, reader, producer or subscription was closed by its owner. Permanent: open another."""


class TopicNotFoundError(ClientError):
    """The topic, or its namespace, does not exist, and the request does not create it. Permanent."""


class NotAllowedError(ClientError):
    """The broker's policy forbids the request, or the broker does not support it. Permanent."""


class ConsumerBusyError(ClientError):
    """Somebody else holds the subscription, and went on holding it for the whole operation timeout. Passing, when the
    other one leaves."""


class ServiceUnavailableError(ClientError):
    """Retries of a passing error did not succeed before the deadline. The text names the topic and the last cause.

    Passing: retry when the brokers are back."""


class ServerRefusedError(ClientError):
    """A broker said no, for a reason that has no class of its own here. Final."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{error_name(code)}: {message}")
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
