"""Resources of a bookie's jobs over HTTP. The original has none.

GET /api/v1/bookie/data_integrity    limbo: ledgers in it, and how far the copying is
GET, PUT /api/v1/bookie/scrub        the scrubber: scrub_web.py
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bookie.bookie import Bookie
from quire.metadata.errors import MetadataError
from quire.servers.bookie.peer_jobs import PeerJobs
from quire.servers.bookie.scrub_web import SCRUB_PATH, ScrubHandlers
from quire.service.jackson import as_json
from quire.service.routes import original_route

LEDGERS_SHOWN = 100


def peer_jobs_routes(bookie: Bookie, jobs: PeerJobs) -> list[Route]:
    """Return the resources."""

    async def data_integrity(request: Request) -> Response:
        progress = jobs.integrity.progress
        waiting = bookie.storage.limbo.ledgers()
        return as_json(
            {
                "running": progress.running,
                "ledgersInLimbo": len(waiting),
                "firstLedgersInLimbo": waiting[:LEDGERS_SHOWN],
                "rounds": progress.rounds,
                "ledgersSettled": progress.ledgers,
                "ledgersClosed": progress.closed,
                "entriesCopied": progress.entries,
                "bytesCopied": progress.bytes,
                "lastFailure": progress.last_failure,
            }
        )

    scrubs = ScrubHandlers(bookie, jobs.scrubber)
    return [
        original_route(SCRUB_PATH, (MetadataError,), GET=scrubs.read, PUT=scrubs.change),
        original_route("/api/v1/bookie/data_integrity", (MetadataError,), GET=data_integrity),
    ]
