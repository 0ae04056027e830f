"""The admin resources of a cluster: real tenants, namespaces and policies in a memory store, with an ownership that
records its calls, and without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import trio

from broker.admin.requests import ClusterService
from broker.console.cluster_ports import ClusterParts
from broker.console.cluster_routes import cluster_routes
from broker.console.topics.routes import topic_routes
from broker.dynamic.conf import DynamicConf
from broker.dynamic.configuration import DynamicConfiguration
from broker.ownership.bundles import RANGE_EQUALLY, Bundle
from broker.ownership.config import OwnershipOptions
from broker.ownership.local import OwnEverything
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.namespaces import Namespaces
from broker.ownership.values import Owner, encode_json, encode_owner
from managed_ledger.config import LogConfig
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Kind
from quire.servers.broker.config import BROKER
from quire.wire.pulsar.names import TopicName
from tests.support.policy_logs import policies_on
from tests.unit.broker.admin.fakes import BROKER_URL, WEB_URL, Rest

HERE = Connect(BROKER_URL, WEB_URL, mine=True)
THERE = Connect("pulsar://other:6650", "http://other:8080", mine=False)
OTHER = Owner(broker_url=THERE.broker_url, web_url=THERE.web_url)
ME = Owner(broker_url=BROKER_URL, web_url=WEB_URL)
DEFAULT = LogConfig(ensemble_size=2, write_quorum=2, ack_quorum=2, retention_minutes=0, retention_mb=0)


class FakeOwnership(OwnEverything):
    """Answers lookups with `found`."""

    def __init__(self) -> None:
        super().__init__(BROKER_URL, WEB_URL)
        self.asked: list[tuple[Any, ...]] = []
        self.found: Connect | Redirect = HERE
        self.bundles: list[Bundle] = []

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect:
        self.asked.append(("lookup", name.full, authoritative))
        return self.found

    async def unload(self, bundle: Bundle, *, destination: str | None = None) -> None:
        self.asked.append(("unload", str(bundle), destination))

    async def split(
        self,
        bundle: Bundle,
        *,
        algorithm: str = RANGE_EQUALLY,
        unload: bool = False,
        positions: Sequence[int] = (),
    ) -> None:
        self.asked.append(("split", str(bundle), algorithm, unload, tuple(positions)))

    def owned(self) -> list[Bundle]:
        return self.bundles


class ClusterRest(Rest):
    """A cluster `c` with tenant `public` and namespace `public/default` of 4 bundles; this broker is `broker:8080`."""

    def __init__(self, **changes: Any) -> None:
        tree = MemoryTree()
        self.store = MemoryStore(tree)
        self.ownership = FakeOwnership()
        self.namespaces = Namespaces(self.store, OwnershipOptions(cluster_name="c", bundles_default=4))
        self.policies = policies_on(tree, self.store, DEFAULT)
        conf = DynamicConf(BROKER, BROKER.build({"clusterName": "c"}))
        self.configuration = DynamicConfiguration(self.store, conf)
        cluster = ClusterService(
            metadata=self.store,
            namespaces=self.namespaces,
            policies=self.policies,
            ownership=self.ownership,
            cluster_name="c",
            broker_id="broker:8080",
            configuration=self.configuration,
        )
        given: dict[str, Any] = {name: (lambda: True) if value is True else value for name, value in changes.items()}
        super().__init__(cluster=replace(cluster, **given))
        self.show(
            cast(
                ClusterParts,
                SimpleNamespace(
                    ledgers=None, network=None, nursery=None, cluster=None, bookie_tls=None, own_bookies={}
                ),
            )
        )

    def show(self, parts: ClusterParts) -> None:
        """Serve the data of the console's cluster pages, from these parts."""
        self.also = [*topic_routes(self.service), *cluster_routes(self.service, parts)]

    async def own(self, bundle: str, owner: Owner) -> None:
        """Give a bundle, such as public/default/0x00000000_0x40000000, an owner."""
        await self.store.create(f"/namespace/{bundle}", encode_owner(owner), kind=Kind.EPHEMERAL, make_parents=True)

    async def status(self, method: str, path: str, **options: Any) -> int:
        return (await self.ask(method, path, **options)).status_code

    async def get(self, path: str) -> Any:
        response = await self.ask("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    async def refused(self, method: str, path: str, status: int, **options: Any) -> str:
        """Send a request that must be refused, and return the reason."""
        response = await self.ask(method, path, **options)
        assert response.status_code == status, response.text
        return str(response.json()["reason"])

    async def sent_to(self, method: str, path: str, **options: Any) -> str:
        """Send a request that must be redirected, and return the address."""
        response: httpx2.Response = await self.ask(method, path, **options)
        assert response.status_code == 307, response.text
        return response.headers["location"]


@asynccontextmanager
async def on_cluster(**changes: Any) -> AsyncIterator[ClusterRest]:
    rest = ClusterRest(**changes)
    await rest.store.create("/admin/clusters/c", b"{}", make_parents=True)
    tenant = encode_json({"allowedClusters": ["c"], "adminRoles": []})
    await rest.store.create("/admin/policies/public", tenant, make_parents=True)
    await rest.store.create("/admin/policies/public/default", b"{}")
    with trio.fail_after(60):
        async with rest.served():
            yield rest
