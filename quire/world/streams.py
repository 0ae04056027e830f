"""Common operations on a Stream."""

from __future__ import annotations

from quire.world.doors import Buffer, Stream


async def send_all(stream: Stream, data: Buffer) -> None:
    """Send `data` whole, however slowly the peer takes it.

    Raises:
        OSError: the connection is broken.
    """
    rest = memoryview(data)
    while rest:
        taken = stream.send_nowait((rest,))
        rest = rest[taken:]
        if not taken:
            await stream.wait_writable()
