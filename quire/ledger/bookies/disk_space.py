"""Sizes of the disks of a bookie, by its own answer."""

from __future__ import annotations

from quire.ledger.bookies.pool import BookieClient
from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.v2 import Rc


async def ask_disk_space(bookies: BookieClient, bookie_id: str) -> tuple[int, int]:
    """Ask a bookie for the bytes of its disks.

    Returns:
        All bytes, and the free ones.

    Raises:
        BookieUnavailableError: The bookie does not answer, or refuses the question.
    """
    bits = v3.TOTAL_DISK_CAPACITY | v3.FREE_DISK_SPACE
    body = await bookies.connection(bookie_id).bookie_info(bits).wait()
    if not isinstance(body, v3.BookieInfo) or body.rc != Rc.OK:
        raise BookieUnavailableError(f"bookie {bookie_id} does not say how large its disks are: {body.rc}")
    return body.total or 0, body.free or 0
