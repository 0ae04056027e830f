"""HTTP resources of a bookie about the cluster's ledgers.

    GET /api/v1/ledger/list?print_metadata=true&page=&decode_meta=true
    GET /api/v1/ledger/metadata?ledger_id=
    DELETE /api/v1/ledger/delete?ledger_id=

Source: BookKeeper's ListLedgerService, GetLedgerMetaService, DeleteLedgerService; tests/golden/bookkeeper/http.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quire.metadata import ledger_codec
from quire.metadata.errors import MetadataError
from quire.metadata.layouts import LONG_ID_LIMIT
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState
from quire.metadata.ledgers import LedgerManager, read_layout
from quire.metadata.store import MetadataStore
from quire.service.jackson import as_json, object_in_steps
from quire.service.routes import original_route
from quire.world.doors import World
from quire.world.tasks import for_each

LEDGERS_PER_PAGE: Final = 100
READS_AT_ONCE: Final = 64
METADATA_MAX: Final = 10_000
"""Ledgers whose metadata is in one answer. The original has no limit."""


class LedgerResources:
    """The answers, one method per resource."""

    def __init__(self, world: World, metadata: MetadataStore, root: str) -> None:
        self._world = world
        self._metadata = metadata
        self._root = root

    async def _manager(self) -> LedgerManager:
        layout = await read_layout(self._metadata, self._root)
        ids = SequenceLedgerIds(self._metadata, self._root)
        return LedgerManager(self._metadata, ids=ids, rng=self._world.rng, root=self._root, layout=layout)

    async def list_ledgers(self, request: Request) -> Response:
        """Return the ids, or the ids and the metadata, all or a page. Pages are of metadata only, from 1 on."""
        asked = request.query_params
        page = number_of(request, "page") if "page" in asked else -1
        if page is None:
            return PlainTextResponse("page must be a number", status_code=400)
        manager = await self._manager()
        if asked.get("print_metadata") != "true":
            listed = [ledger_id async for ledger_id in manager.ledger_ids()]
            return await object_in_steps((str(ledger_id), None) for ledger_id in listed)
        ids = [ledger_id async for ledger_id in manager.ledger_ids()]
        if page > 0:
            ids = ids[(page - 1) * LEDGERS_PER_PAGE :][:LEDGERS_PER_PAGE]
        elif len(ids) > METADATA_MAX:
            text = f"{len(ids)} ledgers, more than {METADATA_MAX}: ask for a page of {LEDGERS_PER_PAGE}"
            return PlainTextResponse(text, status_code=400)
        found: dict[int, LedgerMetadata] = {}

        async def read(ledger_id: int) -> None:
            stored = await manager.read(ledger_id)
            if stored is not None:
                found[ledger_id] = stored.value

        await for_each(ids, read, at_once=READS_AT_ONCE, name="ledger metadata")
        shown = described if asked.get("decode_meta") == "true" else _encoded
        there = ((ledger_id, found[ledger_id]) for ledger_id in ids if ledger_id in found)
        return await object_in_steps((str(ledger_id), shown(ledger_id, metadata)) for ledger_id, metadata in there)

    async def ledger_metadata(self, request: Request) -> Response:
        if "ledger_id" not in request.query_params:
            return PlainTextResponse("Not found method. Should be GET method", status_code=404)
        ledger_id = number_of(request, "ledger_id")
        if ledger_id is None or not 0 <= ledger_id < LONG_ID_LIMIT:
            return PlainTextResponse("Not ledger found. Should provide ledger_id=<id>", status_code=404)
        found = await (await self._manager()).read(ledger_id)
        if found is None:
            return PlainTextResponse("Internal Server Error", status_code=500)
        return as_json({str(ledger_id): described(ledger_id, found.value)})

    async def delete_ledger(self, request: Request) -> Response:
        ledger_id = number_of(request, "ledger_id")
        if ledger_id is None or not 0 <= ledger_id < LONG_ID_LIMIT:
            return PlainTextResponse("Not ledger found. Should provide ledger_id=<id>", status_code=404)
        await (await self._manager()).delete(ledger_id)
        return as_json(f"Deleted ledger: {ledger_id}")

    def routes(self) -> list[Route]:
        failures = (MetadataError,)
        return [
            original_route("/api/v1/ledger/list", failures, GET=self.list_ledgers),
            original_route("/api/v1/ledger/metadata", failures, GET=self.ledger_metadata),
            original_route("/api/v1/ledger/delete", failures, DELETE=self.delete_ledger),
        ]


def number_of(request: Request, name: str) -> int | None:
    """Return the number in a parameter; None if it is missing, or not a number."""
    try:
        return int(request.query_params.get(name, ""))
    except ValueError:
        return None


def _encoded(ledger_id: int, metadata: LedgerMetadata) -> str:
    """Return the metadata as the store has it."""
    return ledger_codec.encode(metadata).decode("utf-8", "replace")


def described(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    """Return the metadata under the original's names."""
    return {
        "ledgerId": ledger_id,
        "metadataFormatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "ctime": metadata.ctime_ms,
        "digestType": metadata.digest_type.name,
        "password": b64encode(metadata.password).decode(),
        "customMetadata": {name: b64encode(value).decode() for name, value in metadata.custom_metadata},
        "closed": metadata.state is LedgerState.CLOSED,
        "allEnsembles": {
            str(fragment.first_entry_id): [{"id": bookie_id} for bookie_id in fragment.bookies]
            for fragment in metadata.fragments
        },
        "ctoken": 0,
    }
