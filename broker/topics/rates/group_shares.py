"""Shares of a resource group among brokers (pure).

Why this is hard: a broker that is held to its part uses no more than that, so its use does not show what its clients
would like to use. Parts in proportion to the last use alone would never give anything to a broker that had nothing to
do. So every broker with a bundle of the group keeps a small part of what all use, and gets more with the next round if
it uses that up; the parts of all brokers are 1 together.

Source: Pulsar's ResourceQuotaCalculatorImpl (the rate times the broker's use, divided by that of all).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.ownership.affinity.spread import namespace_of
from broker.ownership.values import BrokerReport
from broker.topics.rates.groups import WHOLE, Part

KEPT: Final = 0.05
"""Part of the use of all that is shared evenly."""
STEP: Final = 0.05
"""Change of a part below which it stays as it is: reports are never exact."""


def parts(reports: Mapping[str, BrokerReport], me: str, groups: Mapping[str, str]) -> dict[str, Part]:
    """Return the part of each group that the broker `me` has.

    `reports`: loads of the bundles of all brokers; `groups`: the group of each namespace that has one. A group without
    a bundle at any broker is left out."""
    uses: dict[str, dict[str, list[float]]] = {}
    for broker_id, report in reports.items():
        for bundle, load in report.bundles.items():
            group = groups.get(namespace_of(bundle))
            if group is None:
                continue
            use = uses.setdefault(group, {}).setdefault(broker_id, [0.0] * len(WHOLE))
            for index, figure in enumerate((load.messages_in, load.bytes_in, load.messages_out, load.bytes_out)):
                use[index] += figure
    found: dict[str, Part] = {}
    for group, by_broker in uses.items():
        by_broker.setdefault(me, [0.0] * len(WHOLE))  # it may have a bundle that no report has yet
        uses_of = zip(*by_broker.values(), strict=True)
        found[group] = Part(*(_part(list(each), own) for each, own in zip(uses_of, by_broker[me], strict=True)))
    return found


def _part(uses: list[float], own: float) -> float:
    """Return the part of one broker.

    >>> _part([0.0, 0.0], 0.0), _part([10.0, 0.0], 0.0)
    (0.5, 0.023809523809523808)
    """
    total = sum(uses)
    if total <= 0:
        return 1 / len(uses)
    kept = total * KEPT / len(uses)
    return (own + kept) / (total + total * KEPT)


def differs(one: Part, other: Part) -> bool:
    """Return whether a part changed enough to be used."""
    return any(abs(a - b) > STEP * max(a, b) for a, b in zip(one, other, strict=True))
