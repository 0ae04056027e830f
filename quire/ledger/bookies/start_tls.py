"""START_TLS from the client's side: the first request on a connection to a bookie, without which nothing else is sent.

    client  START_TLS  ->            in version 3, whatever the connection speaks later
            <-  its answer, EOK      the last bytes without TLS
            <-> handshake

Source: BookKeeper's PerChannelBookieClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Stream
from quire.world.streams import send_all

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

ANSWER_MAX: Final = 1 << 10
"""Bytes that the answer to START_TLS may have."""
_LENGTH: Final = 4


async def start_tls(stream: Stream, tls: ClientTls, host: str) -> Stream:
    """Return `stream` with TLS; the bookie is known as `host`.

    The caller sets the deadline. After an error the stream is closed. OSError: the bookie has no TLS, or its
    certificate is not accepted.
    """
    try:
        await send_all(stream, v3.start_tls_request(0))
        answer = await _answer(stream)
    except BaseException:
        stream.close()
        raise
    if answer != Rc.OK:
        stream.close()
        raise OSError(
            f"the bookie answers START_TLS with code {answer}: it has no TLS; set its tlsProviderFactoryClass, or "
            "connect without TLS"
        )
    return await tls.secure(stream, host)


async def _answer(stream: Stream) -> int:
    """Return the code of the answer. Not a byte more than the answer is received: what follows is the handshake."""
    length = int.from_bytes(await _exactly(stream, _LENGTH), "big")
    if not 4 <= length <= ANSWER_MAX:
        raise OSError(f"an answer to START_TLS of {length} bytes; at most {ANSWER_MAX} are allowed")
    body = await _exactly(stream, length)
    try:
        [response] = v3.decode_responses(length.to_bytes(_LENGTH, "big") + body)
    except BookkeeperWireError as error:
        raise OSError(f"not an answer to START_TLS: {error}") from error
    outcome = getattr(response, "outcome", response)
    return int(getattr(outcome, "rc", -1))


async def _exactly(stream: Stream, size: int) -> bytes:
    buffer = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        count = await stream.receive_into(buffer[filled:])
        if not count:
            raise OSError("the bookie closed the connection instead of an answer to START_TLS")
        filled += count
    return bytes(buffer)
