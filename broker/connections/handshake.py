"""The handshake of a connection: CONNECT, its authentication, CONNECTED."""

from __future__ import annotations

from broker import replies
from broker.config import SERVER_VERSION
from broker.connections.connection import Connection, ProtocolError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import PROTOCOL_VERSION

CLIENT_VERSION_MAX = 256
"""Maximum characters kept of a client's version."""


def connect(connection: Connection, command: pb.BaseCommand) -> None:
    """Answer CONNECTED. Raises ProtocolError at a second CONNECT."""
    request = command.connect
    if connection.connected:
        raise ProtocolError("a second CONNECT")
    connection.connected = True
    connection.context.connects += 1
    connection.client_version = request.client_version[:CLIENT_VERSION_MAX]
    connection.takes_entry_metadata = request.feature_flags.supports_broker_entry_metadata
    version = min(PROTOCOL_VERSION, request.protocol_version)
    connection.write((replies.connected(SERVER_VERSION, version, connection.context.options),))
