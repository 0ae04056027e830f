"""AUTH from the client's side: the first request of a connection to a bookie, after START_TLS if there is TLS.

    client  AUTH, user and password  ->      in version 3, whatever the connection speaks later
            <-  its answer, EOK              all else follows it

A bookie without authentication answers with another plug-in's name, and is used, as BookKeeper's clients do. The
password crosses the network as it is: use it with TLS. Source: BookKeeper's AuthHandler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.auth import NO_AUTHENTICATION, PASSWORD_FILE
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Stream
from quire.world.streams import send_all

ANSWER_MAX: Final = 4 << 10
"""Bytes that the answer to AUTH may have."""
CREDENTIALS_MAX: Final = 256
"""Bytes that user and password may have together, as a bookie limits them."""
_LENGTH: Final = 4


@dataclass(frozen=True, slots=True)
class BookieCredentials:
    """User and password for bookies. Raises ValueError, whose text has nothing of them."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.user or not self.password or ":" in self.user + self.password:
            raise ValueError("user and password for bookies must not be empty or contain a colon")
        if len(self.payload()) > CREDENTIALS_MAX:
            raise ValueError(f"user and password for bookies have more than {CREDENTIALS_MAX} bytes")

    def payload(self) -> bytes:
        """Encode for an AUTH.

        Returns:
            `user:password` in UTF-8.
        """
        return f"{self.user}:{self.password}".encode()


def read_credentials(data: bytes) -> BookieCredentials:
    """Read a file with one line, `user:password`. Raises ValueError, whose text has nothing of it."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if len(lines) != 1:
        raise ValueError(f"it has {len(lines)} lines; it must have one, user:password")
    user, _, password = lines[0].strip().partition(":")
    return BookieCredentials(user, password)


async def authenticate(stream: Stream, credentials: BookieCredentials) -> None:
    """Authenticate a new connection.

    The caller sets the deadline. After an error the stream is closed. OSError: the bookie refuses.
    """
    try:
        await send_all(stream, v3.auth_request(0, PASSWORD_FILE, credentials.payload()))
        answer = await _answer(stream)
        if answer.rc != Rc.OK:
            raise OSError(
                f"the bookie refuses the user or password (code {answer.rc}); compare the password file of this client "
                "with the bookie's, and its bookieAuthProviderFactoryClass"
            )
        if answer.plugin not in (PASSWORD_FILE, NO_AUTHENTICATION):
            raise OSError("the bookie has another plug-in for authentication")
    except BaseException:
        stream.close()
        raise


async def _answer(stream: Stream) -> v3.AuthAnswer:
    """Return the answer. Not a byte more is received."""
    length = int.from_bytes(await _exactly(stream, _LENGTH), "big")
    if not 4 <= length <= ANSWER_MAX:
        raise OSError(f"an answer to AUTH of {length} bytes; at most {ANSWER_MAX} are allowed")
    body = await _exactly(stream, length)
    try:
        response, *_ = v3.decode_responses(length.to_bytes(_LENGTH, "big") + body)
    except BookkeeperWireError as error:
        raise OSError(f"not an answer to AUTH: {error}") from error
    outcome = getattr(response, "outcome", response)
    if isinstance(outcome, v3.AuthAnswer):
        return outcome
    rc = int(getattr(outcome, "rc", -1))
    return v3.AuthAnswer(rc if rc != Rc.OK else -1, "", b"")


async def _exactly(stream: Stream, size: int) -> bytes:
    buffer = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = await stream.receive_into(buffer[filled:])
        if not count:
            raise OSError("the bookie closed the connection instead of an answer to AUTH")
        filled += count
    return bytes(buffer)
