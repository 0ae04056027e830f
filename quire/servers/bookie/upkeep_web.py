"""Resources of a bookie's upkeep over HTTP. The original has none.

GET /api/v1/bookie/data_integrity    limbo: ledgers in it, and how far the copying is
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bookie.bookie import Bookie
from quire.metadata.errors import MetadataError
from quire.servers.bookie.upkeep import Upkeep
from quire.service.jackson import as_json
from quire.service.routes import original_route

LEDGERS_SHOWN = 100


def upkeep_routes(bookie: Bookie, upkeep: Upkeep) -> list[Route]:
    """Return the resources."""

    async def data_integrity(request: Request) -> Response:
        progress = upkeep.integrity.progress
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

    return [original_route("/api/v1/bookie/data_integrity", (MetadataError,), GET=data_integrity)]
