"""Bookies of a cluster as this broker sees them: registrations, the disks they report, the latency of their answers."""

from __future__ import annotations

from typing import Final

import trio

from broker.admin.top.bookies import SeenBookie
from quire.ledger.bookies.disk_space import ask_disk_space
from quire.ledger.client import LedgerClient
from quire.ledger.errors import BookieError
from quire.metadata.bookies import available, readonly
from quire.metadata.errors import MetadataError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.world.tasks import for_each

BOOKIES_MAX: Final = 200
AT_ONCE: Final = 16
ANSWER_S: Final = 1.0


async def seen_bookies(client: object, metadata: MetadataStore, root: str) -> list[SeenBookie]:
    """Return at most BOOKIES_MAX bookies by id. `client`: that of the ledgers, asked for disks if it can be."""
    try:
        states = {each: "writable" for each in await available(metadata, root=root)}
        states |= {each: "readonly" for each in await readonly(metadata, root=root)}
        for each in await metadata.children(f"{root}/cookies"):
            states.setdefault(each, "lost")
    except NoNodeError:
        states = {}
    except MetadataError:
        return []  # the metadata service is away, which other parts of the answer say
    found: dict[str, SeenBookie] = {}

    async def ask(bookie_id: str) -> None:
        seen = SeenBookie(bookie_id, states[bookie_id])
        if isinstance(client, LedgerClient):
            expected = client.health.expected_s(bookie_id)
            latency = round(expected * 1000, 3) if expected else -1
            seen = seen._replace(latency_ms=latency, pending_reads=client.health.pending(bookie_id))
            if seen.state != "lost":
                seen = await _with_disks(client, seen)
        found[bookie_id] = seen

    await for_each(sorted(states)[:BOOKIES_MAX], ask, at_once=AT_ONCE, name="bookies seen")
    return [found[each] for each in sorted(found)]


async def _with_disks(client: LedgerClient, seen: SeenBookie) -> SeenBookie:
    try:
        with trio.move_on_after(ANSWER_S):
            total, free = await ask_disk_space(client.bookies, seen.bookie_id)
            return seen._replace(free=free, total=total)
    except BookieError:
        pass  # shown as unknown; the registration ends soon if it stays away
    return seen
