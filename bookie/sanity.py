"""Sanity check of a bookie: an entry is added to an otherwise unused ledger, synced, read back and forgotten.

No cluster gives out the ledger's id. After a crash in between, garbage collection removes the ledger.
"""

from __future__ import annotations

from typing import Final

import trio

from bookie.bookie import Bookie
from bookie.sessions.session import BookieSession
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer, Digest, DigestType, master_key
from quire.wire.bookkeeper.v2 import Rc

LIMIT_S: Final = 5.0
INTERVAL_S: Final = 60.0
"""Seconds between two checks of `SanityWatch`."""
_FIRST_ID: Final = 1 << 62
_PAYLOAD: Final = b"sanity"


async def check_sanity(bookie: Bookie, limit_s: float = LIMIT_S) -> bool:
    """Return True if the bookie works within `limit_s`; a read-only bookie is not asked to write."""
    if bookie.failed.is_set():
        return False
    if bookie.read_only:
        return True
    ledger_id = _FIRST_ID + bookie.world.rng.getrandbits(61)
    answers: list[v2.Response] = []
    news = trio.Event()

    def write(parts: list[Buffer]) -> None:
        answers.extend(v2.decode_responses(b"".join(parts)))
        news.set()

    digest = Digest(DigestType.CRC32C, b"")
    entry = digest.seal(ledger_id, 0, -1, len(_PAYLOAD), _PAYLOAD) + _PAYLOAD
    session = BookieSession(bookie, write)
    passed = False
    with trio.move_on_after(limit_s):
        session.receive([v2.add_head(len(entry), master_key(b"")) + entry])
        await news.wait()
        added, answers[:] = answers == [v2.AddAcks(Rc.OK, ledger_id, 0, 0)], []
        news = trio.Event()
        session.receive([v2.read_request(ledger_id, 0)])
        await news.wait()
        read = answers[0]
        passed = added and isinstance(read, v2.ReadResponse) and read.rc == Rc.OK and bytes(read.entry) == entry
    session.close()
    await bookie.storage.delete_ledger(ledger_id)
    return passed


class SanityWatch:
    """Repeated sanity checks, for the metrics. Source: BookKeeper's sanityCheckMetricsEnabled."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self.passed = -1
        """1: the last check passed, 0: it failed, -1: there was none."""

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self.passed = int(await check_sanity(self._bookie))
            await trio.sleep(INTERVAL_S)
