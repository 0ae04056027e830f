"""The scrubber over HTTP, of a bookie and of a standalone server. The original has nothing like it.

GET /api/v1/bookie/scrub     when each log was last read, what is damaged, what was healed
PUT /api/v1/bookie/scrub     begin a scrub, or go on with one, now: without a body, or {"begin": true}; or set the rate
                             until the next start: {"entriesPerSecond": 500}
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bookie.bookie import Bookie
from bookie.scrubber.scrubber import Scrubber
from quire.service.jackson import as_json, decoded
from quire.service.log import get_logger
from quire.service.routes import Check

log = get_logger(__name__)

SCRUB_PATH: Final = "/api/v1/bookie/scrub"
RATE_MAX: Final = 1_000_000
LEDGERS_SHOWN: Final = 100
LOGS_SHOWN: Final = 1000
"""Logs that were read longest ago."""


class ScrubHandlers:
    """Handlers of the resource."""

    def __init__(self, bookie: Bookie, scrubber: Scrubber) -> None:
        self._bookie = bookie
        self._scrubber = scrubber

    async def read(self, request: Request) -> Response:
        """Return what the scrubber read and found."""
        return as_json(scrub_report(self._bookie, self._scrubber))

    async def change(self, request: Request) -> Response:
        """Begin a scrub, or set its rate, or both."""
        try:
            wanted = decode_scrub(await request.body())
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=400)
        if wanted.rate is not None:
            self._scrubber.rate = wanted.rate
            log.info("rate of scrubs set over HTTP", entries_per_second=wanted.rate)
        if wanted.begin:
            self._scrubber.ask()
            log.info("scrub asked for over HTTP")
        return await self.read(request)


def scrub_route(bookie: Bookie, scrubber: Scrubber, check: Check) -> Route:
    """Return the resource behind a check of its requests, for a web port that has other resources too."""
    handlers = ScrubHandlers(bookie, scrubber)

    async def answer(request: Request) -> Response:
        refusal = await check(request)
        if refusal is not None:
            return refusal
        return await (handlers.change if request.method == "PUT" else handlers.read)(request)

    return Route(SCRUB_PATH, answer, methods=["GET", "PUT"])


class WantedScrub(NamedTuple):
    """Request of a PUT. `rate`: entries per second; None: as it is."""

    begin: bool
    rate: int | None


def decode_scrub(body: bytes) -> WantedScrub:
    """Return what a body asks for. ValueError.

    >>> decode_scrub(b""), decode_scrub(b'{"entriesPerSecond": 5}')
    (WantedScrub(begin=True, rate=None), WantedScrub(begin=False, rate=5))
    """
    if not body:
        return WantedScrub(begin=True, rate=None)
    try:
        value = decoded(body)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value or not value.keys() <= {"begin", "entriesPerSecond"}:
        raise ValueError('the body must be empty, or JSON with "begin" or "entriesPerSecond" or both')
    begin, rate = value.get("begin", False), value.get("entriesPerSecond")
    if not isinstance(begin, bool):
        raise ValueError("begin must be true or false")
    if rate is not None and (not isinstance(rate, int) or isinstance(rate, bool) or not 1 <= rate <= RATE_MAX):
        raise ValueError(f"entriesPerSecond must be a whole number from 1 to {RATE_MAX}")
    return WantedScrub(begin, rate)


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
        "entriesPerSecond": scrubber.rate,
        "rounds": counts.rounds,
        "entriesRead": counts.entries,
        "bytesRead": counts.bytes,
        "damagedEntries": counts.damaged,
        "healedEntries": counts.healed,
        "entriesWithoutRow": counts.strays,
        "rowsWritten": counts.rows_written,
        "bytesCopied": scrubber.bytes_copied,
        "lastFailure": counts.last_failure,
        "directories": directories,
    }
