"""HTTP resources of a bookie about its cluster.

    GET /api/v1/bookie/cluster_info
    GET /api/v1/bookie/list_bookie_info
    GET /api/v1/ledger/read?ledger_id=&start_entry_id=&end_entry_id=&page=

The last two ask bookies, with a client that is opened for the request: they are rare, and a bookie needs no client
otherwise. Its TLS and credentials are those of a client in the same file.
Source: BookKeeper's ClusterInfoService, ListBookieInfoService, ReadLedgerEntryService; tests/golden/bookkeeper/http.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from autorecovery.auditing.overview import describe_cluster
from autorecovery.errors import AutoRecoveryError
from quire.ledger.bookies.disk_space import ask_disk_space
from quire.ledger.client import LedgerClient
from quire.ledger.errors import BookieError, LedgerError, NoSuchEntryError
from quire.ledger.opening import open_client_on
from quire.metadata import bookies
from quire.metadata.errors import MetadataError
from quire.metadata.layouts import LONG_ID_LIMIT
from quire.metadata.store import MetadataStore
from quire.servers.bookie.auth_keys import bookie_credentials
from quire.servers.bookie.client_tls import client_tls
from quire.servers.bookie.config import BookieServerConfig
from quire.service.errors import ConfigError
from quire.service.jackson import as_json
from quire.service.log import get_logger
from quire.service.routes import Handler, original_route
from quire.world.doors import World
from quire.world.tasks import for_each

log = get_logger(__name__)

ENTRIES_PER_PAGE: Final = 1000
BYTES_MAX: Final = 16 << 20
"""Payload of one answer. The original puts the whole ledger into memory if no page is asked for."""
READ_BYTES: Final = 1 << 20
ASKED_TOGETHER: Final = 16
ANSWER_S: Final = 5.0
"""Time for a bookie to tell its disks; one that does not is left out."""
REQUEST_S: Final = 60.0
"""Time for the entries of an answer."""


class ClusterResources:
    """The answers, one method per resource."""

    def __init__(self, world: World, metadata: MetadataStore, config: BookieServerConfig) -> None:
        self._world = world
        self._metadata = metadata
        self._config = config
        self._root = config.bookie.ledgers_root

    async def cluster_info(self, request: Request) -> Response:
        return as_json(await describe_cluster(self._world, self._metadata, self._root))

    async def list_bookie_info(self, request: Request) -> Response:
        found: dict[str, tuple[int, int]] = {}
        root = self._root
        names = [
            *await bookies.available(self._metadata, root=root),
            *await bookies.readonly(self._metadata, root=root),
        ]
        async with self._client() as client:

            async def ask(bookie_id: str) -> None:
                with trio.move_on_after(ANSWER_S):
                    try:
                        found[bookie_id] = await ask_disk_space(client.bookies, bookie_id)
                    except BookieError as error:
                        log.warning("a bookie does not tell its disks", bookie=bookie_id, reason=str(error))

            await for_each(sorted(names), ask, at_once=ASKED_TOGETHER, name="bookie info")
        if not found:
            return PlainTextResponse("Not found any Bookie info.", status_code=404)
        answer = {each: f": {_space(free, total)}," for each, (total, free) in sorted(found.items())}
        total, free = (sum(column) for column in zip(*found.values(), strict=True))
        return as_json({**answer, "ClusterInfo: ": _space(free, total)})

    async def read_ledger(self, request: Request) -> Response:
        asked = request.query_params
        try:
            ledger_id = int(asked["ledger_id"])
            first, last = int(asked.get("start_entry_id", 0)), int(asked.get("end_entry_id", -1))
            page = int(asked.get("page", -1))
        except KeyError:
            return PlainTextResponse("Not found method. Should be GET method, with ledger_id provided", status_code=404)
        except ValueError as error:
            return PlainTextResponse(f"not a number: {error}", status_code=400)
        if not 0 <= ledger_id < LONG_ID_LIMIT:
            return PlainTextResponse(f"{ledger_id} is not a ledger id", status_code=400)
        found: dict[str, str] = {}
        if page > 0:
            start = (page - 1) * ENTRIES_PER_PAGE
            first = max(first, start)
            end = start + ENTRIES_PER_PAGE - 1
            last = end if last == -1 else min(last, end)
            found["Entries for page: "] = str(page)
        if first < 0 or last < -1 or (last != -1 and first > last):
            text = f"parameter for start_entry_id: {first} and end_entry_id: {last} conflict with page={page}"
            return PlainTextResponse(text, status_code=500)
        with trio.fail_after(REQUEST_S):
            async with self._client() as client:
                try:
                    entries = await _read(client, ledger_id, first, last)
                except LedgerError as error:
                    return PlainTextResponse(str(error), status_code=500)
        if entries is None:
            text = f"more than {BYTES_MAX} bytes: ask for a page, or for fewer entries"
            return PlainTextResponse(text, status_code=400)
        for entry_id, payload in enumerate(entries, first):
            found[str(entry_id)] = bytes(payload).decode("ascii", "replace")
        return as_json(found)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[LedgerClient]:
        config = self._config
        try:
            side = await client_tls(self._world, config.tls)
            known = await bookie_credentials(self._world, config.client_auth.password_file)
        except ConfigError as error:
            raise AutoRecoveryError(f"no client of bookies can be made: {error}") from error
        async with open_client_on(self._world, self._metadata, root=self._root, tls=side, credentials=known) as client:
            yield client

    def routes(self) -> list[Route]:
        return [
            _route("/api/v1/bookie/cluster_info", GET=self.cluster_info),
            _route("/api/v1/bookie/list_bookie_info", GET=self.list_bookie_info),
            _route(
                "/api/v1/ledger/read",
                GET=self.read_ledger,
            ),
        ]


def _route(path: str, **handlers: Handler) -> Route:
    return original_route(path, (MetadataError, AutoRecoveryError), **handlers)


async def _read(client: LedgerClient, ledger_id: int, first: int, last: int) -> list[memoryview] | None:
    """Return the entries from `first` to `last`, -1: to the end; None if they are too many bytes. LedgerError."""
    metadata = await client.read_metadata(ledger_id)
    password = metadata.password_or(b"")
    reader = await client.open(ledger_id, password=password, recover=False, digest_type=metadata.digest_type)
    entries: list[memoryview] = []
    size = 0
    end = reader.last_entry_id if last == -1 else min(last, reader.last_entry_id)
    while first + len(entries) <= end:
        try:
            for entry in await reader.read(first + len(entries), end, size_max=READ_BYTES):
                entries.append(entry)
                size += len(entry)
        except NoSuchEntryError:
            break
        if size > BYTES_MAX:
            return None
    return entries


def _space(free: int, total: int) -> str:
    return f"{{Free: {free}{_readable(free)}, Total: {total}{_readable(total)}}}"


def _readable(count: int) -> str:
    """Return the count in the original's units, rounded down; nothing below one of them.

    >>> _readable(999), _readable(63299858432), _readable(2000)
    ('', '(63.299GB)', '(2KB)')
    """
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "KB")):
        if count >= 10**power:
            thousandths = count * 1000 // 10**power
            text = f"{thousandths // 1000}.{thousandths % 1000:03d}".rstrip("0").rstrip(".")
            return f"({text}{unit})"
    return ""
