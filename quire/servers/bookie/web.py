"""A bookie's HTTP port: the original's resources.

    GET /heartbeat, /metrics
    GET, PUT /api/v1/config/server_config
    GET /api/v1/bookie/list_bookies?type=rw|ro, last_log_mark, list_disk_file?file_type=, state, state/readonly, sanity,
        is_ready, info
    PUT /api/v1/bookie/state/readonly {"readOnly": true}, expand_storage
    ledgers_web.py: /api/v1/ledger/list, metadata, delete
    gc_web.py: /api/v1/bookie/gc, gc_details, gc/suspend_compaction, gc/resume_compaction, entry_location_compact
    cluster_web.py: /api/v1/bookie/cluster_info, list_bookie_info, /api/v1/ledger/read
    quire/servers/autorecovery/web.py, removal_web.py: /api/v1/autorecovery/...

JSON is spaced as the original spaces it; a wrong method is a 404 with a text. Import it when the bookie's own port is
up: it brings Starlette and hypercorn.
Source: BookKeeper's HttpRouter and its services; answers of the running original.
"""

from __future__ import annotations

import json
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from autorecovery.marks.underreplication import UnderreplicatedLedgers
from bookie.bookie import Bookie
from bookie.errors import BookieError
from bookie.sanity import check_sanity
from quire.metadata import bookies
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.servers.autorecovery.removal_web import RemovalResources
from quire.servers.autorecovery.web import AutorecoveryResources
from quire.servers.bookie.cluster_web import ClusterResources
from quire.servers.bookie.config import BOOKIE, BookieServerConfig
from quire.servers.bookie.gc_web import GcResources
from quire.servers.bookie.ledgers_web import LedgerResources
from quire.servers.bookie.peer_jobs import PeerJobs
from quire.servers.bookie.peer_jobs_web import peer_jobs_routes
from quire.servers.bookie.storage_expansion import expand_storage
from quire.service.config import render_value
from quire.service.errors import ConfigError
from quire.service.http import make_original_app
from quire.service.jackson import as_json, decoded
from quire.service.log import get_logger
from quire.service.metrics import Metrics
from quire.service.routes import Handler, original_route

log = get_logger(__name__)


class BookieResources:
    """The answers, one method per resource."""

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore,
        config: BookieServerConfig,
        nursery: trio.Nursery,
        jobs: PeerJobs,
    ) -> None:
        """`nursery`: for work that goes on after its answer."""
        self._conf = jobs.conf
        self._bookie = bookie
        self._metadata = metadata
        self._config = config
        self._sanity = trio.CapacityLimiter(1)
        self._gc = GcResources(bookie, config.id, nursery)
        self._cluster = ClusterResources(bookie.world, metadata, config)
        root = config.bookie.ledgers_root
        marks = UnderreplicatedLedgers(
            metadata, root=root, rng=bookie.world.rng, wall_ms=bookie.world.clock.wall_ms, owner=config.id
        )
        self._recovery = AutorecoveryResources(metadata, marks, root)
        self._ledgers = LedgerResources(bookie.world, metadata, root)
        self._removal = RemovalResources(metadata, marks, root, bookie.world.rng, jobs.open_repair, nursery)
        self._expansion = trio.CapacityLimiter(1)

    # --- the server

    async def config(self, request: Request) -> Response:
        found = {}
        keys = BOOKIE.keys()
        for name, value in BOOKIE.values_of(self._config).items():
            found[name] = "***" if keys[name].secret and value else render_value(value)
        return as_json(found)

    async def set_config(self, request: Request) -> Response:
        """Take values that the keys have. Others are refused: keys are read at the start of a bookie, and a value that
        is stored and changes nothing is what the original has."""
        if not await request.body():
            return PlainTextResponse("Request body not found. should contains k-v pairs", status_code=404)
        wanted = await _body(request)
        now = {name: render_value(value) for name, value in BOOKIE.values_of(self._config).items()}
        unknown = sorted(set(wanted) - set(now))
        changed = sorted(name for name in set(wanted) & set(now) if _text_of(wanted[name]) != now[name])
        if not wanted or unknown:
            return PlainTextResponse(f"no keys of a bookie: {', '.join(unknown) or 'none was given'}", status_code=400)
        if changed:
            text = f"{', '.join(changed)}: takes effect at a start; change the file and restart the bookie"
            return PlainTextResponse(text, status_code=400)
        return PlainTextResponse("Success set server config.")

    async def is_ready(self, request: Request) -> Response:
        if self._bookie.failed.is_set():
            return PlainTextResponse("Bookie is not fully started yet", status_code=503)
        return PlainTextResponse("OK")

    async def state(self, request: Request) -> Response:
        failed = self._bookie.failed.is_set()
        state: dict[str, Any] = {
            "running": not failed,
            "readOnly": self._bookie.read_only,
            "shuttingDown": self._bookie.is_stopping,
            "availableForHighPriorityWrites": not failed and self._bookie.disks.takes_urgent,
        }
        if self._bookie.read_only and request.query_params.get("reason") == "true":
            # Only on request: without it the answer has the names that the original's has.
            state["readOnlyReason"] = self._bookie.mode.reason
        unusable = {
            folder: reason
            for health in (self._bookie.journals, self._bookie.directories)
            for folder, reason in zip(health.folders, health.reasons, strict=True)
            if reason
        }
        if unusable:
            state["unusableDirectories"] = unusable
        return as_json(state)

    async def read_only(self, request: Request) -> Response:
        return as_json({"readOnly": self._bookie.read_only})

    async def set_read_only(self, request: Request) -> Response:
        wanted = (await _body(request)).get("readOnly")
        if not isinstance(wanted, bool):
            return PlainTextResponse('Bad request. Should be {"readOnly": true|false}', status_code=400)
        if not wanted and self._config.bookie.force_read_only:
            text = "Bookie is in forceReadOnly mode, cannot transit to writable mode"
            return PlainTextResponse(text, status_code=400)
        if wanted and not self._config.bookie.read_only_mode_enabled:
            text = "Bookie is disabled ReadOnly mode, cannot transit to readOnly mode"
            return PlainTextResponse(text, status_code=400)
        self._bookie.set_read_only(wanted)
        if not await self._bookie.mode.kept():
            reason = "The mode has changed, but cannot be stored for a restart: see the log of the bookie"
            return PlainTextResponse(reason, status_code=500)
        return await self.read_only(request)

    async def sanity(self, request: Request) -> Response:
        async with self._sanity:
            passed = await check_sanity(self._bookie)
        return as_json({"passed": passed, "readOnly": self._bookie.read_only})

    # --- its disk

    async def expand_storage(self, request: Request) -> Response:
        """Add the new folders of the configuration's file, for the next start."""
        try:
            async with self._expansion:
                await expand_storage(self._bookie.world, self._metadata, self._config, self._conf)
        except (BookieError, ConfigError, OSError) as error:
            log.warning("storage not expanded", reason=str(error))
            text = f"Exception while updating cookie for storage expansion: {error}"
            return PlainTextResponse(text, status_code=500)
        return PlainTextResponse("Success expand storage")

    async def info(self, request: Request) -> Response:
        total, free = await self._bookie.world.offload.run(self._bookie.disk_space, name="disk space")
        return as_json({"freeSpace": free, "totalSpace": total})

    async def last_log_mark(self, request: Request) -> Response:
        return as_json(
            {
                f"LastLogMark: Journal Id - {mark.file_id}({mark.file_id:x}.txn)": f"Pos - {mark.offset}"
                for mark in self._bookie.last_marks
            }
        )

    async def files(self, request: Request) -> Response:
        config = self._config.bookie
        kinds = {
            "journal": ("journal files", config.journal_directories, ".txn"),
            "entrylog": ("entrylog files", config.ledger_directories, ".log"),
            "index": ("index files", config.indexes, ".idx"),
        }
        asked = request.query_params.get("file_type")
        disk = self._bookie.world.disk

        def look() -> dict[str, str]:
            found = {}
            for kind, (title, folders, suffix) in kinds.items():
                if asked is None or asked == kind:
                    there = [name for folder in folders for name in disk.names(f"{folder}/current")]
                    names = [name for name in there if name.endswith(suffix)]
                    found[title] = "".join(f"{name}\t" for name in names)
            return found

        return as_json(await self._bookie.world.offload.run(look, name="files"))

    # --- the cluster

    async def list_bookies(self, request: Request) -> Response:
        read_only = request.query_params.get("type") == "ro"
        root = self._config.bookie.ledgers_root
        names = await (bookies.readonly if read_only else bookies.available)(self._metadata, root=root)
        hosts = request.query_params.get("print_hostnames") == "true"
        found: dict[str, str | None] = {}
        for name in names:
            info = await bookies.service_info(self._metadata, name, root=root) if hosts else None
            endpoint = info.bookie_endpoint if info is not None else None
            found[name] = endpoint.host if endpoint is not None else None
        return as_json(found)

    def routes(self) -> list[Route]:
        return [
            _route(
                "/api/v1/config/server_config",
                GET=self.config,
                PUT=self.set_config,
            ),
            _route("/api/v1/bookie/list_bookies", GET=self.list_bookies),
            _route("/api/v1/bookie/last_log_mark", GET=self.last_log_mark),
            _route("/api/v1/bookie/list_disk_file", GET=self.files),
            _route("/api/v1/bookie/expand_storage", PUT=self.expand_storage),
            *self._ledgers.routes(),
            *self._gc.routes(),
            *self._cluster.routes(),
            *self._recovery.routes(),
            *self._removal.routes(),
            _route("/api/v1/bookie/state", GET=self.state),
            _route(
                "/api/v1/bookie/state/readonly",
                GET=self.read_only,
                PUT=self.set_read_only,
            ),
            _route(
                "/api/v1/bookie/sanity",
                GET=self.sanity,
            ),
            _route("/api/v1/bookie/is_ready", GET=self.is_ready),
            _route("/api/v1/bookie/info", GET=self.info),
        ]


def _route(path: str, **handlers: Handler) -> Route:
    return original_route(path, (MetadataError,), **handlers)


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = decoded(await request.body())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def web_app(
    bookie: Bookie,
    metadata: MetadataStore,
    config: BookieServerConfig,
    nursery: trio.Nursery,
    metrics: Metrics | None,
    jobs: PeerJobs,
) -> Starlette:
    """Return the site of a bookie. `nursery`: for collections of garbage that are asked for. `metrics`: None: they are
    switched off."""
    routes = [*BookieResources(bookie, metadata, config, nursery, jobs).routes(), *peer_jobs_routes(bookie, jobs)]
    return make_original_app(metrics, routes, not_found=_not_found)


async def _not_found(request: Request, error: Exception) -> Response:
    return HTMLResponse("<html><body><h1>Resource not found</h1></body></html>", status_code=404)
