"""Resource groups in the metadata, and the shares that brokers have of them: the shell around `groups` and
`group_shares`.

    /admin/resourcegroups/<group>   {"publishRateInMsgs":10,"publishRateInBytes":1000,
                                     "dispatchRateInMsgs":20,"dispatchRateInBytes":2000}; -1 or absent: no limit

The brokers of the original exchange their use through a topic, if resourceUsageTransportClassName names how; those of
Quire take it from the load reports, which every broker has of every other one anyway.

Source: Pulsar's ResourceGroupResources (the path), ResourceGroup, ResourceGroupConfigListener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from broker.errors import BrokerError
from broker.ownership.affinity.spread import namespace_of
from broker.ownership.following import follow
from broker.ownership.tenants import POLICIES
from broker.ownership.values import BrokerReport, decode_json
from broker.topics.rates.bucket import Rate
from broker.topics.rates.group_shares import differs, parts
from broker.topics.rates.groups import WHOLE, GroupRates, ResourceGroups
from broker.topics.topic_policies.catalog import RESOURCE_GROUP
from quire.metadata.errors import MetadataError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger

log = get_logger(__name__)

GROUPS: Final = "/admin/resourcegroups"
RECHECK_S: Final = 30.0
"""Interval at which nodes are read again, because a watch may be late or missed."""
RATES: Final = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")


class GroupFollowing:
    """Keeps the groups of one broker as they are stored, and its shares of them."""

    def __init__(self, metadata: MetadataStore, groups: ResourceGroups, on_change: Callable[[], None]) -> None:
        """`on_change`: called when rates have changed, to let the topics follow."""
        self._metadata = metadata
        self._groups = groups
        self._on_change = on_change
        self._stored: dict[str, GroupRates] = {}
        self._following: dict[str, trio.CancelScope] = {}

    async def run(self) -> None:
        """Follow the stored groups until cancelled."""
        async with trio.open_nursery() as nursery:
            await follow(self._metadata, GROUPS, partial(self._look_at_all, nursery), recheck_s=RECHECK_S)

    async def _look_at_all(self, nursery: trio.Nursery) -> None:
        try:
            names = await self._metadata.children(GROUPS)
        except NoNodeError:
            names = []
        gone = [name for name in self._following if name not in names]
        for name in gone:
            self._following.pop(name).cancel()
            self._stored.pop(name, None)
        if gone:
            self._learn()
        for name in names:
            if name not in self._following:
                scope = self._following[name] = trio.CancelScope()
                nursery.start_soon(self._follow, name, scope, name=f"follow resource group {name}")

    async def _follow(self, name: str, scope: trio.CancelScope) -> None:
        with scope:
            await follow(self._metadata, f"{GROUPS}/{name}", partial(self._look_at, name), recheck_s=RECHECK_S)

    async def _look_at(self, name: str) -> None:
        node = await self._metadata.get(f"{GROUPS}/{name}")
        if node is None or name not in self._following:
            return  # the list of all groups decides
        try:
            self._stored[name] = rates_of(decode_json(node.value, f"resource group {name}"))
        except (BrokerError, ValueError) as error:
            log.warning("resource group not obeyed", group=name, reason=str(error))
            return
        self._learn()

    def _learn(self) -> None:
        if self._groups.learn(self._stored):
            self._on_change()

    async def share(
        self, me: str, reports: Callable[[], Mapping[str, BrokerReport]], interval_s: Callable[[], float]
    ) -> None:
        """Set this broker's parts of the groups again and again, until cancelled.

        Args:
            me: the broker's id.
            reports: returns the last reports of all brokers, this one's among them.
            interval_s: returns the time until the next round.
        """
        while True:
            await trio.sleep(interval_s())
            if self._groups.limited():
                await self._share_once(me, reports())

    async def _share_once(self, me: str, reports: Mapping[str, BrokerReport]) -> None:
        namespaces = {namespace_of(bundle) for report in reports.values() for bundle in report.bundles}
        try:
            groups = {each: found for each in sorted(namespaces) if (found := await self._group_of(each))}
        except (BrokerError, MetadataError) as error:
            log.warning("resource groups not shared among brokers", reason=str(error))
            return
        shares, changed = parts(reports, me, groups), False
        for group in self._groups.limited():
            part = shares.get(group.name, WHOLE)
            if differs(group.part, part):
                changed |= group.hold(group.rates, part)
        if changed:
            self._on_change()

    async def _group_of(self, namespace: str) -> str | None:
        node = await self._metadata.get(f"{POLICIES}/{namespace}")
        return None if node is None else RESOURCE_GROUP.of_namespace(decode_json(node.value, namespace), "")


def rates_of(fields: Mapping[str, Any]) -> GroupRates:
    """Return the rates of a stored group. Raises ValueError.

    >>> rates_of({"publishRateInMsgs": 10, "dispatchRateInBytes": -1}).publish
    Rate(messages=10, bytes=0, period_s=1)
    """
    values: list[int] = []
    for name in RATES:
        value = fields.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(f"{name} must be a whole number, not {str(value)[:40]!a}")
        values.append(max(value or 0, 0))
    published, published_bytes, delivered, delivered_bytes = values
    return GroupRates(Rate(published, published_bytes), Rate(delivered, delivered_bytes))
