"""Clocks of a cluster's bookies, by the Date of an answer of their web ports."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import httpx2
import trio

from quire.cli.checkup import verdicts
from quire.cli.checkup.verdicts import CheckResult
from quire.metadata import bookies
from quire.metadata.errors import MalformedMetadataError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.world.tasks import for_each

WEB: Final = "httpserver"
"""Id of the endpoint of a bookie's web port."""
PEERS_MAX: Final = 200
ASKED_TOGETHER: Final = 16
ANSWER_S: Final = 5.0
_REMEDY: Final = "Start it, or see its log; its clock is not known"


@dataclass(slots=True)
class BookieClocks:
    """Registered bookies."""

    urls: dict[str, str] = field(default_factory=dict)
    """Address of the web port by bookie, of those that have one."""
    silent: int = 0
    """Bookies without a web port."""

    def examine(self) -> Iterator[CheckResult]:
        """Yield the verdicts about their clocks. Blocking, for ANSWER_S and the number of bookies."""
        found = trio.run(self._ask) if self.urls else {}
        for bookie_id in self.urls:
            skew = found[bookie_id]
            if isinstance(skew, str):
                yield verdicts.warning("clock", f"the web port of bookie {bookie_id} does not answer: {skew}", _REMEDY)
            else:
                yield verdicts.clock(f"bookie {bookie_id}", skew[0], resolution_s=skew[1])
        if self.silent:
            what = f"{self.silent} bookies have no web port (httpServerEnabled), so their clocks are not compared"
            yield verdicts.ok("clock", what)

    async def _ask(self) -> dict[str, tuple[float, float] | str]:
        """Return by how many seconds each clock is ahead, and how exactly that is known; or why it is not."""
        found: dict[str, tuple[float, float] | str] = {}
        async with httpx2.AsyncClient(timeout=ANSWER_S, verify=False) as client:

            async def ask(bookie_id: str) -> None:
                try:
                    begun = time.time()
                    answer = await client.get(f"{self.urls[bookie_id]}/heartbeat")
                    ended = time.time()
                    told = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
                except (httpx2.HTTPError, OSError, KeyError, ValueError) as error:
                    found[bookie_id] = str(error) or type(error).__name__
                    return
                found[bookie_id] = told - (begun + ended) / 2, 1.0 + ended - begun

            await for_each(sorted(self.urls), ask, at_once=ASKED_TOGETHER, name="clocks")
        return found


async def find_bookie_clocks(store: MetadataStore, root: str) -> BookieClocks:
    """Return the bookies that are registered now. MetadataError."""
    peers = BookieClocks()
    names: list[str] = []
    for registered in (bookies.available, bookies.readonly):
        try:
            names += await registered(store, root=root)
        except NoNodeError:
            continue
    for bookie_id in sorted(names)[:PEERS_MAX]:
        try:
            info = await bookies.service_info(store, bookie_id, root=root)
        except MalformedMetadataError:
            info = None
        web = next((each for each in (() if info is None else info.endpoints) if each.id == WEB), None)
        if web is None:
            peers.silent += 1
        else:
            peers.urls[bookie_id] = f"{web.protocol or 'http'}://{web.host}:{web.port}"
    return peers
