"""Resource quotas: the load that bundles are expected to have, by which they are placed before it is measured.

    /loadbalance/resource-quota/default                         of bundles that have none of their own
    /loadbalance/resource-quota/<tenant>/<namespace>/<range>    of one bundle
        {"msgRateIn":40.0,"msgRateOut":120.0,"bandwidthIn":100000.0,"bandwidthOut":300000.0,"memory":80.0,
         "dynamic":true}

Brokers are compared by messages in and out per second, so of a quota these two count. The original's
ModularLoadManagerImpl takes a bundle's own quota for its load until there are data of the bundle, which then change it
slowly; its SimpleLoadManagerImpl takes the default one too.

Source: Pulsar's BundlesQuotas (the paths), ModularLoadManagerImpl.getBundleDataOrDefault, SimpleLoadManagerImpl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from broker.errors import BrokerError, translated
from broker.ownership.values import decode_json
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.web.shapes import Number, Record, Truth

log = get_logger(__name__)

QUOTAS: Final = "/loadbalance/resource-quota"
DEFAULT: Final = "default"
KNOWN_S: Final = 5.0
"""Time for which quotas are not read again."""
SHAPE: Final = Record(
    {
        "msgRateIn": Number(),
        "msgRateOut": Number(),
        "bandwidthIn": Number(),
        "bandwidthOut": Number(),
        "memory": Number(),
        "dynamic": Truth(),
    }
)


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected loads, in messages in and out per second."""

    bundles: Mapping[str, float] = field(default_factory=dict)
    """Loads of bundles with a quota of their own, by `namespace/range`."""
    default: float | None = None
    """Load of a bundle about which nothing is known; None: as much as the average one."""


class BundleQuotas:
    """Quotas of a cluster, read when bundles are placed."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._known = Expected()
        self._until = float("-inf")

    async def expected(self) -> Expected:
        """Return the stored quotas, which may be KNOWN_S old. Raises MetadataUnavailableError (of `broker.errors`)."""
        if trio.current_time() >= self._until:
            with translated("resource quotas"):
                self._known = await self._read()
            self._until = trio.current_time() + KNOWN_S
        return self._known

    async def _read(self) -> Expected:
        default: float | None = None
        found: dict[str, float] = {}
        for tenant in await self._children(QUOTAS):
            if tenant == DEFAULT:
                default = await self._rate(f"{QUOTAS}/{DEFAULT}")
                continue
            for namespace in await self._children(f"{QUOTAS}/{tenant}"):
                for ends in await self._children(f"{QUOTAS}/{tenant}/{namespace}"):
                    bundle = f"{tenant}/{namespace}/{ends}"
                    if (rate := await self._rate(f"{QUOTAS}/{bundle}")) is not None:
                        found[bundle] = rate
        return Expected(found, default)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._metadata.children(path)
        except NoNodeError:
            return []

    async def _rate(self, path: str) -> float | None:
        node = await self._metadata.get(path)
        if node is None:
            return None
        try:
            return rate_of(decode_json(node.value, path))
        except (BrokerError, ValueError) as error:
            log.warning("resource quota not obeyed", path=path, reason=str(error))
            return None


def rate_of(quota: object) -> float:
    """Return the messages per second of a quota. Raises ValueError.

    >>> rate_of({"msgRateIn": 10.0, "msgRateOut": 20.0})
    30.0
    """
    given = SHAPE.check(quota, "a quota", ValueError)
    rate: float = given.get("msgRateIn", 0.0) + given.get("msgRateOut", 0.0)
    return max(0.0, rate)
