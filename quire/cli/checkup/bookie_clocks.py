"""Clocks of a cluster's bookies, by the Date of an answer of their web ports."""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import httpx2
import trio

from quire.cli.checkup import verdicts
from quire.cli.checkup.verdicts import CheckResult
from quire.metadata import bookies
from quire.metadata.errors import MalformedMetadataError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.world.real_tls import TlsFiles
from quire.world.tasks import for_each
from quire.world.tls_options import TlsOptions

WEB: Final = "httpserver"
"""Id of the endpoint of a bookie's web port."""
PEERS_MAX: Final = 200
ASKED_TOGETHER: Final = 16
ANSWER_S: Final = 5.0
_REMEDY: Final = "Start it, or see its log; its clock is not known"
_NO_CERTIFICATE: Final = (
    "Its port demands a certificate, and the configuration has none: set tlsKeyStore and tlsCertificatePath"
    " (bookkeeperTLSKeyFilePath and bookkeeperTLSCertificateFilePath of a broker)"
)
_FILES: Final = "Correct the files that the configuration names"


@dataclass(slots=True)
class BookieClocks:
    """Registered bookies."""

    urls: dict[str, str] = field(default_factory=dict)
    """Address of the web port by bookie, of those that have one."""
    silent: int = 0
    """Bookies without a web port."""

    def examine(self, shown: TlsOptions | None = None) -> Iterator[CheckResult]:
        """Yield the verdicts about their clocks. Blocking, for ANSWER_S and the number of bookies.

        Args:
            shown: options with the certificate for ports behind https, which demand one; None: there is none.
        """
        secure = any(url.startswith("https:") for url in self.urls.values())
        try:
            context = _context(shown) if secure else None
        except (OSError, ValueError) as error:
            yield verdicts.warning("clock", f"no certificate for web ports of bookies: {error}", _FILES)
            context = _context(None)
        found = trio.run(self._ask, context) if self.urls else {}
        for bookie_id in self.urls:
            skew = found[bookie_id]
            if isinstance(skew, str):
                remedy = _NO_CERTIFICATE if shown is None and self.urls[bookie_id].startswith("https:") else _REMEDY
                yield verdicts.warning("clock", f"the web port of bookie {bookie_id} does not answer: {skew}", remedy)
            else:
                yield verdicts.clock(f"bookie {bookie_id}", skew[0], resolution_s=skew[1])
        if self.silent:
            what = f"{self.silent} bookies have no web port (httpServerEnabled), so their clocks are not compared"
            yield verdicts.ok("clock", what)

    async def _ask(self, context: ssl.SSLContext | None) -> dict[str, tuple[float, float] | str]:
        """Return by how many seconds each clock is ahead, and how exactly that is known; or why it is not."""
        found: dict[str, tuple[float, float] | str] = {}
        async with httpx2.AsyncClient(timeout=ANSWER_S, verify=context or False) as client:

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


def _context(shown: TlsOptions | None) -> ssl.SSLContext:
    """Return a context with the certificate of `shown`. Raises TlsFilesError, ValueError.

    It trusts any bookie: certificates are judged by the clock, which is in doubt here, and only the time is asked for.
    """
    own = TlsOptions() if shown is None else shown
    options = replace(own, verify=False, check_host=False, require_certificate=False, trust_file="")
    return TlsFiles(options, server_side=False).context


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
