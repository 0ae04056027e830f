"""The admin REST over a broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import trio

from broker.admin.requests import ClusterService, Service
from broker.admin.resources import routes
from broker.console.topics.routes import topic_routes
from broker.ownership.config import OwnershipOptions
from broker.ownership.namespaces import Namespaces
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from tests.unit.broker.peers import Room


class Rest:
    """Requests to one broker."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str) -> Any:
        answer = await self._client.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    async def refused(self, method: str, path: str, status: int, **options: Any) -> str:
        """Send a request that must be refused; return the reason."""
        answer = await self._client.request(method, path, **options)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return str(answer.json()["reason"])

    async def status(self, method: str, path: str, **options: Any) -> int:
        return (await self._client.request(method, path, **options)).status_code


@asynccontextmanager
async def rest_of(room: Room, *, cluster: bool = False, console: bool = False) -> AsyncIterator[Rest]:
    """Serve the REST of a broker. `cluster`: also the resources of namespaces and of policies; `console`: also the data
    of its pages of topics."""
    broker, store = room.broker, room.cluster.stores[0]
    whole = ClusterService(
        metadata=store,
        namespaces=Namespaces(store, OwnershipOptions(cluster_name="standalone")),
        policies=broker.policies,
        ownership=broker.ownership,
        cluster_name="standalone",
        loaded=broker.topics.loaded,
        wall_ms=broker.context.world.clock.wall_ms,
    )
    service = Service(
        administration=broker.administration,
        client_partitions=broker.client_partitions,
        broker_url=lambda: broker.service_url,
        web_url=lambda: "http://test:8080",
        deadline_s=30.0,
        cluster=whole if cluster or console else None,
    )
    served = [*routes(service), *(topic_routes(service) if console else ())]
    app = make_app(Metrics(), Health(is_ready=lambda: True, check=trio.lowlevel.checkpoint), served)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        yield Rest(client)
