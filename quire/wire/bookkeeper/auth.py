"""AUTH: a plug-in's name and its payload. Version 3 has them in its messages, version 2 as a frame's body. Pure."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper.errors import MalformedError

NO_AUTHENTICATION: Final = "AuthDisabledPlugin"
"""Name of the plug-in in answers of bookies without authentication."""
PASSWORD_FILE: Final = "QuirePasswordFile"
"""Name of Quire's plug-in. The client's only payload is `name:password` in UTF-8; that of the answer is empty."""


def auth_message(plugin: str, payload: bytes) -> bytes:
    """Return the body of version 2."""
    return pb.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()


def decode_auth_message(message: bytes) -> tuple[str, bytes]:
    """Return plug-in and payload of a body of version 2. MalformedError."""
    try:
        made = pb.AuthMessage.FromString(message)
    except DecodeError as error:
        raise MalformedError(f"not an AuthMessage: {error}") from error
    return made.authPluginName, made.payload
