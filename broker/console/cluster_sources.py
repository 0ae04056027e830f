"""Processes of a cluster with their web ports, for the warnings of their logs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.admin.requests import ClusterService
from broker.console.cluster_bundles import registered_reports
from broker.console.cluster_disks import Disks
from broker.console.cluster_ports import ClusterParts
from broker.console.cluster_warnings import LogSource
from broker.ownership.http_client import request
from quire.metadata.bookies import service_info, web_url
from quire.metadata.errors import MalformedMetadataError
from quire.world.doors import Network

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls


class Sources:
    """Other processes of a cluster: registered brokers and bookies."""

    def __init__(
        self, cluster: ClusterService, disks: Disks, parts: ClusterParts, fetch: Callable[[str], Awaitable[bytes]]
    ) -> None:
        self._cluster = cluster
        self._disks = disks
        self._parts = parts
        self._fetch = fetch

    async def all(self) -> list[LogSource]:
        """Return the processes, without this one and the bookies in it. Raises MetadataError, BrokerError."""
        cluster, found = self._cluster, list[LogSource]()
        others = cluster.others
        if cluster.broker_id and others is not None:
            reports, _ = await registered_reports(cluster.metadata)
            for broker_id, report in sorted(reports.items()):
                if broker_id != cluster.broker_id:
                    ask = partial(others.call, others.url_of(report.broker), "GET")
                    found.append(LogSource("broker", broker_id, ask))
        for bookie_id, state in (await self._disks.states()).items():
            if bookie_id not in self._parts.own_bookies and state != "gone":
                url = await self._web_url(bookie_id)
                found.append(LogSource("bookie", bookie_id, partial(self._ask, url) if url else None))
        return found

    async def _web_url(self, bookie_id: str) -> str:
        try:
            info = await service_info(self._cluster.metadata, bookie_id, root=self._cluster.ledgers_root)
        except MalformedMetadataError:
            return ""
        return "" if info is None else web_url(info)

    async def _ask(self, base: str, path: str) -> Any:
        return json.loads(await self._fetch(f"{base}{path}"))


async def fetched(network: Network, tls: ClientTls | None, url: str) -> bytes:
    """Return the body of a URL of a bookie. Raises OSError, also for an answer that is no 200."""
    if tls is None and url.startswith("https:"):
        raise OSError(f"{url} needs bookkeeperTLSClientAuthentication=true at this broker, with a certificate")
    found = await request(network, "GET", url, tls=tls)
    if found.status != 200:
        raise OSError(f"{url} answered {found.status}")
    return found.body
