"""Resource groups as one broker holds its topics to them: a rate of publishing and one of delivery, which all topics of
the group at this broker share.

A group exists here as soon as a topic names it, without limits until it is known what is stored of it. Its rates change
in place, so that what was used of them counts on.

Source: Pulsar's ResourceGroup, ResourceGroupPublishLimiter, ResourceGroupDispatchLimiter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import trio

from broker.topics.rates.bucket import Rate, RateBucket
from broker.topics.rates.publishing import PublishThrottle

NO_RATE: Final = Rate(0, 0)


class Part(NamedTuple):
    """Part of the rates of a group that this broker may use, each from 0 to 1."""

    messages_in: float = 1.0
    bytes_in: float = 1.0
    messages_out: float = 1.0
    bytes_out: float = 1.0


WHOLE: Final = Part()


class GroupRates(NamedTuple):
    """Rates of a group in the whole cluster."""

    publish: Rate = NO_RATE
    dispatch: Rate = NO_RATE

    def part(self, part: Part) -> GroupRates:
        """Return the rates of one broker; what is limited stays so.

        >>> GroupRates(publish=Rate(10, 0)).part(Part(messages_in=0.01)).publish
        Rate(messages=1, bytes=0, period_s=1)
        """
        publish, dispatch = self
        return GroupRates(
            Rate(_part(publish.messages, part.messages_in), _part(publish.bytes, part.bytes_in)),
            Rate(_part(dispatch.messages, part.messages_out), _part(dispatch.bytes, part.bytes_out)),
        )


def _part(whole: int, part: float) -> int:
    return max(1, round(whole * part)) if whole > 0 else 0


class ResourceGroup:
    """One group at this broker."""

    __slots__ = ("_part", "dispatch", "name", "publish", "rates")

    def __init__(self, name: str, nursery: trio.Nursery) -> None:
        self.name = name
        self.rates = GroupRates()
        """Rates in the whole cluster."""
        self._part = WHOLE
        self.publish = PublishThrottle(NO_RATE, nursery, f"resource group {name}")
        self.dispatch = RateBucket(NO_RATE, trio.current_time())

    def hold(self, rates: GroupRates, part: Part) -> bool:
        """Hold to these rates of the cluster, of which this broker has a part; return whether its own changed."""
        self.rates, self._part = rates, part
        own = rates.part(part)
        if own == (self.publish.rate, self.dispatch.rate):
            return False
        self.publish.change(own.publish)
        self.dispatch.change(own.dispatch, trio.current_time())
        return True

    @property
    def part(self) -> Part:
        return self._part


class ResourceGroups:
    """The groups that topics of this broker name, and those that are stored."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._groups: dict[str, ResourceGroup] = {}

    def of(self, name: str) -> ResourceGroup:
        """Return a group; one that is not stored has no limits."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ResourceGroup(name, self._nursery)
        return group

    def limited(self) -> list[ResourceGroup]:
        """Return the groups that limit anything."""
        return [each for each in self._groups.values() if any(each.rates)]

    def learn(self, stored: Mapping[str, GroupRates]) -> bool:
        """Learn what is stored of all groups; return whether the rates of any changed. The caller then lets the topics
        follow, which look their groups up again."""
        changed = False
        for name in [name for name in self._groups if name not in stored]:
            changed |= self._groups.pop(name).hold(GroupRates(), WHOLE)
        for name, rates in stored.items():
            group = self.of(name)
            changed |= group.hold(rates, group.part)
        return changed
