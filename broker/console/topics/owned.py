"""Bundles of brokers as their nodes tell it now: /namespace/<tenant>/<namespace>/<range> names the owner.

A broker's report tells of its bundles too, and is some seconds old: one that stopped just after it had taken a bundle
has not told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from broker.errors import BrokerError
from broker.ownership.values import decode_owner
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.world.tasks import for_each

NAMESPACE: Final = "/namespace"
READERS: Final = 16
"""Nodes that are read at a time."""
BUNDLES_MAX: Final = 20_000
"""Nodes that are read in all."""


async def bundles_of(store: MetadataStore, urls: Collection[str], url_of: Callable[[Any], str]) -> dict[str, list[str]]:
    """Return the names of the bundles of each of some brokers; nodes that cannot be read are left out.

    Args:
        store: the metadata of the cluster.
        urls: of the brokers, as `url_of` gives them; at least one.
        url_of: the URL of an owner.

    Raises:
        MetadataError: the metadata cannot be read.
    """
    found: dict[str, list[str]] = {url: [] for url in urls}
    paths: list[str] = []
    for tenant in await _children(store, NAMESPACE):
        for namespace in await _children(store, f"{NAMESPACE}/{tenant}"):
            ranges = await _children(store, f"{NAMESPACE}/{tenant}/{namespace}")
            paths += [f"{tenant}/{namespace}/{each}" for each in ranges]
            if len(paths) >= BUNDLES_MAX:
                break

    async def read(bundle: str) -> None:
        node = await store.get(f"{NAMESPACE}/{bundle}")
        if node is None:
            return
        try:
            url = url_of(decode_owner(node.value))
        except BrokerError:
            return
        if url in found:
            found[url].append(bundle)

    await for_each(paths[:BUNDLES_MAX], read, at_once=READERS, name="owners of bundles")
    return found


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []
