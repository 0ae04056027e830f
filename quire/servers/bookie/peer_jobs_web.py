"""Resources of a bookie's jobs over HTTP. The original has none.

GET /api/v1/bookie/data_integrity    limbo: ledgers in it, and how far the copying is
GET /api/v1/bookie/scrub             when each log was last read, what is damaged, what was healed
PUT /api/v1/bookie/scrub             begin a scrub, or go on with one, now
"""

from __future__ import annotations

from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bookie.bookie import Bookie
from bookie.scrubber.scrubber import Scrubber
from quire.metadata.errors import MetadataError
from quire.servers.bookie.peer_jobs import PeerJobs
from quire.service.jackson import as_json
from quire.service.routes import original_route

LEDGERS_SHOWN = 100
LOGS_SHOWN = 1000
"""Logs that were read longest ago."""


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

    async def scrub(request: Request) -> Response:
        return as_json(scrub_report(bookie, jobs.scrubber))

    async def begin_scrub(request: Request) -> Response:
        jobs.scrubber.ask()
        return await scrub(request)

    return [
        original_route("/api/v1/bookie/scrub", (MetadataError,), GET=scrub, PUT=begin_scrub),
        original_route("/api/v1/bookie/data_integrity", (MetadataError,), GET=data_integrity),
    ]


def scrub_report(bookie: Bookie, scrubber: Scrubber) -> dict[str, object]:
    """Return what the scrubber read, found and healed. Times in milliseconds since 1970, 0 for never."""
    counts = scrubber.counts
    directories = [
        {
            "directory": directory,
            "roundBegan": record.round_began_ms,
            "roundEnded": record.round_ended_ms,
            "roundRuns": record.position >= 0,
            "nextLedger": record.position,
            "entriesRead": record.entries,
            "entriesUnverified": record.unverified,
            "damagedEntries": record.damaged_entries,
            "damagedLedgers": len(record.damages),
            "firstDamagedLedgers": [
                {
                    "ledger": ledger_id,
                    "entries": len(entries),
                    "firstEntry": min(entries),
                    "reason": entries[min(entries)].reason,
                    "notHealed": record.lost.get(ledger_id, ""),
                }
                for ledger_id, entries in islice(record.damages.items(), LEDGERS_SHOWN)
            ],
            "logs": [
                {"log": f"{log_id:x}", "lastRead": at, "damage": record.damaged_logs.get(log_id, "")}
                for log_id, at in islice(sorted(record.logs.items(), key=lambda pair: pair[1]), LOGS_SHOWN)
            ],
            "logsRead": len(record.logs),
        }
        for directory, record in zip(bookie.config.ledger_directories, scrubber.records, strict=True)
    ]
    return {
        "running": counts.running,
        "rounds": counts.rounds,
        "entriesRead": counts.entries,
        "bytesRead": counts.bytes,
        "damagedEntries": counts.damaged,
        "healedEntries": counts.healed,
        "bytesCopied": scrubber.bytes_copied,
        "lastFailure": counts.last_failure,
        "directories": directories,
    }
