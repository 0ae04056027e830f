"""Capabilities of a client, derived from the client_version of its CONNECT (pure).

The protocol has no flag for these. Source: the official clients, C++ 4.2.0 (and Python, Node.js on top of it), Go and
Java.
"""

from __future__ import annotations

from quire.wire.pulsar import PulsarApi_pb2 as pb

_JAVA = "Pulsar-Java"
_CPP = "Pulsar-CPP"


def understands_end_of_topic(client_version: str) -> bool:
    """Return whether REACHED_END_OF_TOPIC may be sent. C++ and Go treat it as a broken connection, close it and
    reconnect."""
    return client_version.startswith(_JAVA)


def refusal_code(client_version: str) -> pb.ServerError:
    """Return the code of a SEND_ERROR that fails only this send.

    To C++ any code but ChecksumError means a broken connection, after which it reconnects and sends the same again."""
    return pb.ChecksumError if client_version.startswith(_CPP) else pb.NotAllowedError
