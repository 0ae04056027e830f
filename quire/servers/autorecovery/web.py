"""The web port of `quire autorecovery`: the original's resources of auto recovery.

    GET /heartbeat, /metrics
    GET /api/v1/autorecovery/status                          {"enabled" : true}      PUT ?enabled=true|false
    GET /api/v1/autorecovery/list_under_replicated_ledger    ?missingreplica=&excludingmissingreplica=
                                                             &printmissingreplica=
    GET /api/v1/autorecovery/who_is_auditor
    GET /api/v1/autorecovery/lost_bookie_recovery_delay      PUT {"delay_seconds": 60}
    PUT /api/v1/autorecovery/trigger_audit
    removal_web.py: /api/v1/autorecovery/bookie, decommission

JSON is spaced as the original spaces it; a wrong method is a 404 with a text.
Source: BookKeeper's HttpRouter and its services; tests/golden/bookkeeper/http/http.json.
"""

from __future__ import annotations

from typing import Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from autorecovery.auditing.election import read_auditor
from autorecovery.auditing.overview import working_auditor
from autorecovery.errors import AutoRecoveryError, NoAuditorError
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from autorecovery.service import RecoveryStats
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.servers.autorecovery.recovery_metrics import register_recovery
from quire.servers.autorecovery.removal_web import OpenRepair, RemovalResources
from quire.servers.machine_metrics import Certified, register_machine
from quire.service.http import make_original_app
from quire.service.jackson import as_json, decoded
from quire.service.measuring.loop_watch import watch_loop
from quire.service.metrics import Metrics
from quire.service.routes import Handler, original_route
from quire.world.doors import World

DELAY_S_MAX: Final = (1 << 31) - 1
"""The original's delay is a Java int."""


class AutorecoveryResources:
    """The answers, one method per resource."""

    def __init__(self, store: MetadataStore, marks: UnderreplicatedLedgers, root: str) -> None:
        self._store = store
        self._marks = marks
        self._root = root

    async def status(self, request: Request) -> Response:
        return as_json({"enabled": await self._marks.is_enabled()})

    async def set_status(self, request: Request) -> Response:
        wanted = request.query_params.get("enabled", "").lower()
        if wanted not in ("true", "false"):  # (the original takes what is not true for false)
            return PlainTextResponse("Param 'enabled' must be true or false", status_code=400)
        await (self._marks.enable() if wanted == "true" else self._marks.disable())
        return await self.status(request)

    async def marked(self, request: Request) -> Response:
        asked = request.query_params
        found = {
            each.ledger_id: list(each.replicas)
            async for each in self._marks.list(
                missing=asked.get("missingreplica") or None, excluding=asked.get("excludingmissingreplica") or None
            )
        }
        if not found:
            return PlainTextResponse("No under replicated ledgers found", status_code=404)
        return as_json(found if "printmissingreplica" in asked else list(found))

    async def who_is_auditor(self, request: Request) -> Response:
        auditor = await read_auditor(self._store, self._root)
        if auditor is None:
            return PlainTextResponse("No auditor elected", status_code=404)
        return PlainTextResponse(f"Auditor: {auditor}")

    async def recovery_delay(self, request: Request) -> Response:
        found = await self._marks.read_recovery_delay()
        if found is None:
            return PlainTextResponse("lostBookieRecoveryDelay is not set: no auditor was here yet", status_code=404)
        return PlainTextResponse(f"lostBookieRecoveryDelay value: {found.value}")

    async def set_recovery_delay(self, request: Request) -> Response:
        try:
            asked = decoded(await request.body())["delay_seconds"]
        except (ValueError, KeyError, TypeError):
            return PlainTextResponse("Request body not contains lostBookieRecoveryDelay.", status_code=404)
        if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= DELAY_S_MAX:
            return PlainTextResponse(f"delay_seconds must be a number from 0 to {DELAY_S_MAX}", status_code=400)
        await self._marks.set_recovery_delay(asked)
        return PlainTextResponse(f"Success set lostBookieRecoveryDelay to {asked}")

    async def trigger_audit(self, request: Request) -> Response:
        try:
            await working_auditor(self._store, self._marks, self._root)
        except NoAuditorError as error:
            return PlainTextResponse(f"Exception when do operation.{error}", status_code=404)
        await self._marks.audit_now()
        return PlainTextResponse("Success trigger audit.")

    def routes(self) -> list[Route]:
        base = "/api/v1/autorecovery"
        return [
            _route(f"{base}/status", GET=self.status, PUT=self.set_status),
            _route(f"{base}/list_under_replicated_ledger", GET=self.marked),
            _route(f"{base}/who_is_auditor", GET=self.who_is_auditor),
            _route(f"{base}/lost_bookie_recovery_delay", GET=self.recovery_delay, PUT=self.set_recovery_delay),
            _route(f"{base}/trigger_audit", PUT=self.trigger_audit),
        ]


def _route(path: str, **handlers: Handler) -> Route:
    return original_route(path, (MetadataError, AutoRecoveryError), **handlers)


def web_app(
    world: World,
    store: MetadataStore,
    stats: RecoveryStats,
    side: Certified | None,
    *,
    root: str,
    name: str,
    open_repair: OpenRepair,
    nursery: trio.Nursery,
) -> Starlette:
    """Return the site of auto recovery. `side`: TLS of its port; `nursery`: for work that goes on after its answer."""
    metrics = Metrics()
    watch_loop(metrics)
    register_recovery(metrics, stats)
    register_machine(metrics, {"httpServerPort": side})
    marks = UnderreplicatedLedgers(store, root=root, rng=world.rng, wall_ms=world.clock.wall_ms, owner=name)
    removal = RemovalResources(store, marks, root, world.rng, open_repair, nursery)
    return make_original_app(metrics, [*AutorecoveryResources(store, marks, root).routes(), *removal.routes()])
