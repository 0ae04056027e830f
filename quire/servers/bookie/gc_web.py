"""HTTP resources of a bookie's garbage collection and compaction.

    GET, PUT /api/v1/bookie/gc {"forceMajor": true, "forceMinor": true}
    GET /api/v1/bookie/gc_details
    GET, PUT /api/v1/bookie/gc/suspend_compaction {"suspendMajor": true, "suspendMinor": true}
    PUT /api/v1/bookie/gc/resume_compaction {"resumeMajor": true, "resumeMinor": true}
    GET, PUT /api/v1/bookie/entry_location_compact {"entryLocationRocksDBCompact": true, "entryLocations": "a,b"}

Source: BookKeeper's TriggerGCService, GCDetailsService, SuspendCompactionService, ResumeCompactionService,
TriggerLocationCompactService; answers of the running original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bookie.bookie import Bookie
from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.gc.schedule import AskedCompactions
from quire.metadata.errors import MetadataError
from quire.service.jackson import as_json, decoded
from quire.service.log import get_logger
from quire.service.routes import original_route

log = get_logger(__name__)


class GcResources:
    """The answers, one method per resource. `nursery`: for a compaction of the location index."""

    def __init__(self, bookie: Bookie, name: str, nursery: trio.Nursery) -> None:
        self._bookie = bookie
        self._garbage = bookie.garbage
        self._name = name
        self._server = f"Bookie Server listening on {name} with id {name}"
        self._nursery = nursery

    async def is_collecting(self, request: Request) -> Response:
        return as_json({"is_in_force_gc": _text(self._garbage.forced)})

    async def collect(self, request: Request) -> Response:
        try:
            body = await _asked(request)
            major, minor = _switch(body, "forceMajor"), _switch(body, "forceMinor")
        except ValueError as error:
            return PlainTextResponse(f"Failed to handle the request, exception: {error}", status_code=400)
        suspended = self._garbage.schedule.suspended
        if not self._garbage.forced:
            self._garbage.force(
                AskedCompactions(
                    not suspended.major if major is None else major,
                    not suspended.minor if minor is None else minor,
                )
            )
        return as_json(f"Triggered GC on BookieServer: {self._name}")

    async def details(self, request: Request) -> Response:
        status, last = self._garbage.status, self._garbage.status.last_ms
        return as_json(
            [
                {
                    "forceCompacting": self._garbage.forced,
                    "majorCompacting": status.compacting is CompactionKind.MAJOR,
                    "minorCompacting": status.compacting is CompactionKind.MINOR,
                    "lastMajorCompactionTime": last[CompactionKind.MAJOR],
                    "lastMinorCompactionTime": last[CompactionKind.MINOR],
                    "lastEntryLocationCompactionTime": status.last_locations_ms,
                    "majorCompactionCounter": storage.stats.compactions[CompactionKind.MAJOR],
                    "minorCompactionCounter": storage.stats.compactions[CompactionKind.MINOR],
                    "entryLocationCompactionCounter": storage.stats.location_compactions,
                }
                for storage in self._garbage.storages
            ]
        )

    async def suspensions(self, request: Request) -> Response:
        suspended = self._garbage.schedule.suspended
        return as_json({"isMinorGcSuspended": _text(suspended.minor), "isMajorGcSuspended": _text(suspended.major)})

    async def suspend(self, request: Request) -> Response:
        return await self._set(request, "suspend", suspended=True)

    async def resume(self, request: Request) -> Response:
        return await self._set(request, "resume", suspended=False)

    async def _set(self, request: Request, word: str, *, suspended: bool) -> Response:
        if not await request.body():
            return PlainTextResponse("Empty request body", status_code=400)
        body = await _body(request)
        major, minor = body.get(f"{word}Major"), body.get(f"{word}Minor")
        if not all(each is None or isinstance(each, bool) for each in (major, minor)):
            return PlainTextResponse(f"{word}Major and {word}Minor must be true or false", status_code=400)
        if major is not True and minor is not True and (suspended or (major is None and minor is None)):
            return PlainTextResponse(f"No {word}Major or {word}Minor params found", status_code=400)
        done = []
        state = self._garbage.schedule.suspended
        if major is True:
            state.major = suspended
            done.append(f"{word.capitalize()} majorGC on BookieServer: {self._server}")
        if minor is True:
            state.minor = suspended
            done.append(f"{word.capitalize()} minorGC on BookieServer: {self._server}")
        for line in done:
            log.info("compaction switched over HTTP", what=line)
        return as_json(", ".join(done))

    async def locations(self, request: Request) -> Response:
        compacting = self._garbage.status.compacting_locations
        return as_json(dict.fromkeys(self._paths(), compacting))

    def _paths(self) -> list[str]:
        return [storage.locations_path for storage in self._garbage.storages]

    async def compact_locations(self, request: Request) -> Response:
        if not await request.body():
            return PlainTextResponse("Empty request body", status_code=400)
        body = await _body(request)
        wanted = body.get("entryLocationRocksDBCompact", False)
        if not isinstance(wanted, bool):
            return PlainTextResponse("Internal Server Error", status_code=500)
        if not wanted:
            return PlainTextResponse("Not trigger Entry Location RocksDB compact.")
        named = str(body.get("entryLocations") or "").strip()
        chosen = [path.strip() for path in named.split(",")] if named else self._paths()
        if not set(chosen) <= set(self._paths()):
            answer = as_json(
                f"Specified trigger compact entryLocations: {named} is invalid. Bookie entry location RocksDB path: "
                f"[{', '.join(self._paths())}]."
            )
            answer.status_code = 400
            return answer
        if not self._garbage.status.compacting_locations:
            self._nursery.start_soon(self._compact_locations, chosen, name="locations compaction")
        which = (
            f" RocksDB: {named} compact on bookie:{self._name}."
            if named
            else f" RocksDB compact on bookie:{self._name}"
        )
        return as_json(f"Triggered entry Location{which}")

    async def _compact_locations(self, chosen: list[str]) -> None:
        try:
            await self._garbage.compact_locations(chosen)
        except OSError as error:
            log.warning("the location index cannot be compacted", reason=str(error))

    def routes(self) -> list[Route]:
        retried = (MetadataError,)
        return [
            original_route("/api/v1/bookie/gc", retried, GET=self.is_collecting, PUT=self.collect),
            original_route("/api/v1/bookie/gc_details", retried, GET=self.details),
            original_route("/api/v1/bookie/gc/suspend_compaction", retried, GET=self.suspensions, PUT=self.suspend),
            original_route("/api/v1/bookie/gc/resume_compaction", retried, PUT=self.resume),
            original_route(
                "/api/v1/bookie/entry_location_compact", retried, GET=self.locations, PUT=self.compact_locations
            ),
        ]


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = decoded(await request.body())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _asked(request: Request) -> dict[str, Any]:
    """Return the object in the body, empty without one. ValueError: it is no object."""
    text = (await request.body()).strip()
    found = decoded(text) if text else {}
    if not isinstance(found, dict):
        raise ValueError("an object is expected")
    return found


def _switch(body: Mapping[str, object], name: str) -> bool | None:
    """Return a value that is true or false, also as a text; None without one. ValueError: it is neither."""
    value = body.get(name)
    text = str(value).lower()
    if value is not None and text not in ("true", "false"):
        raise ValueError(f"{name} must be true or false")
    return None if value is None else text == "true"


def _text(value: bool) -> str:
    return "true" if value else "false"
