"""START_TLS from the bookie's side: a client may ask for TLS with its first request.

Only the first request may ask, and nothing may follow it before its answer. Otherwise bytes that were sent without TLS,
by whoever is on the way, would count as sent with it.

Source: BookKeeper's BookieRequestProcessor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from quire.service.log import get_logger
from quire.service.neighbours.rare_lines import RareLines
from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Stream
from quire.world.streams import send_all

if TYPE_CHECKING:
    from quire.world.tls_sides import ServerTls

REQUEST_MAX: Final = 1 << 10
"""Bytes that a request for TLS may have; a longer first request is another one."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedTls:
    """TLS that a bookie offers on its port."""

    side: ServerTls
    handshake_timeout_s: float
    required: bool = False
    """True: a client that does not begin with START_TLS is disconnected."""
    rare_lines: RareLines = field(default_factory=RareLines)
    """Log lines about bad clients."""


class Begun(NamedTuple):
    """A connection after its first bytes."""

    stream: Stream
    received: bytes
    """Bytes that belong to its first requests."""


async def begin(raw: Stream, offered: OfferedTls) -> Begun | None:
    """Wait for the first request; return the connection with TLS if that asks for it, or as it is.

    None: it ended, or may not go on; the reason is logged. OSError. The caller closes `raw`."""
    received = await _first_frame(raw)
    txn_id = _start_tls(received)
    if txn_id is None:
        if offered.required and received:
            if offered.rare_lines.admits("no START_TLS", raw.peer):
                log.info("connection closed: it does not begin with START_TLS", connection=raw.peer)
            return None
        return Begun(raw, received) if received else None
    size = 4 + int.from_bytes(received[:4], "big")
    if len(received) > size:
        if offered.rare_lines.admits("bytes behind START_TLS", raw.peer):
            log.info("connection closed: bytes behind START_TLS", connection=raw.peer, bytes=len(received) - size)
        return None
    try:
        with trio.fail_after(offered.handshake_timeout_s):
            await send_all(raw, v3.start_tls_response(txn_id, Rc.OK))
            return Begun(await offered.side.secure(raw), b"")
    except (OSError, trio.TooSlowError) as error:
        reason = str(error) or f"no handshake within {offered.handshake_timeout_s:g} s"
        if offered.rare_lines.admits("tls handshake failed", raw.peer):
            log.info("tls handshake failed", server="bookie", connection=raw.peer, reason=reason)
        return None


async def _first_frame(raw: Stream) -> bytes:
    """Return received bytes: at least a whole frame, or as many as show that it is no START_TLS; none at the end."""
    received = bytearray()
    buffer = memoryview(bytearray(REQUEST_MAX + 4))
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big") <= REQUEST_MAX:
        count = await raw.receive_into(buffer)
        if not count:
            return b""
        received += buffer[:count]
    return bytes(received)


def _start_tls(received: bytes) -> int | None:
    """Return the transaction id if the first request is START_TLS."""
    length = int.from_bytes(received[:4], "big")
    frame = received[: 4 + length]
    if not 4 <= length <= REQUEST_MAX or not v3.is_version_3(frame):
        return None
    [first, *_] = v3.decode_requests(frame)
    return first.txn_id if isinstance(first, v3.StartTlsRequest) else None
