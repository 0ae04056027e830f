"""Groups of bookies that a ledger may be on (pure), as Pulsar keeps them in the ledger's custom metadata.

    EnsemblePlacementPolicyConfig   {"policyClass": "org.apache.pulsar.bookie.rackawareness.Isolated...",
                                     "properties": {"isolationBookieGroups": "a,b",
                                                    "secondaryIsolationBookieGroups": "c"}}

A group is one of the rack map (`topology`). Bookies of other groups are left out; those of the secondary groups are
used too while the primary ones have fewer writable bookies than the ensemble needs. A bookie that is in no group is
never left out, and one that is in several counts as one of the primary groups. Since the metadata names the groups,
replacements of failed bookies and the copies of auto recovery keep to them as well.

Source: Pulsar's IsolatedBookieEnsemblePlacementPolicy, EnsemblePlacementPolicyConfig, BrokerService (the properties).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from quire.service.log import get_logger

log = get_logger(__name__)

KEY: Final = "EnsemblePlacementPolicyConfig"
POLICY_CLASS: Final = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
PRIMARY: Final = "isolationBookieGroups"
SECONDARY: Final = "secondaryIsolationBookieGroups"


class BookieGroups(NamedTuple):
    """Names of the groups that a ledger may be on."""

    primary: frozenset[str]
    secondary: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return ",".join(sorted(self.primary)) + "".join(f" ({each})" for each in sorted(self.secondary))


def encode_groups(primary: str, secondary: str) -> tuple[str, bytes]:
    """Return the entry of the custom metadata. Both are names with commas.

    >>> groups_of([encode_groups("a,b", "")]) == BookieGroups(frozenset("ab"))
    True
    """
    properties = {PRIMARY: primary, SECONDARY: secondary}
    value = {"policyClass": POLICY_CLASS, "properties": properties}
    return KEY, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def groups_of(custom_metadata: Sequence[tuple[str, bytes]]) -> BookieGroups | None:
    """Return the groups that a ledger's custom metadata names; None: it may be on any bookie.

    An entry that cannot be read, and one of another policy, names none."""
    for key, value in custom_metadata:
        if key == KEY:
            try:
                found = json.loads(value)
                if found["policyClass"] != POLICY_CLASS:
                    return None
                return BookieGroups(*(_names(found["properties"].get(each)) for each in (PRIMARY, SECONDARY)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                log.warning("placement of a ledger cannot be read", value=repr(value[:200]), reason=repr(error))
                return None
    return None


def _names(text: object) -> frozenset[str]:
    return frozenset(each.strip() for each in str(text or "").split(",") if each.strip())


def left_out(
    wanted: BookieGroups, groups: Mapping[str, Collection[str]], writable: Collection[str], ensemble_size: int
) -> frozenset[str]:
    """Return the bookies that must not hold the ledger.

    >>> groups = {"a": ["1", "2"], "b": ["3"], "c": ["4", "2"]}
    >>> sorted(left_out(BookieGroups(frozenset("a"), frozenset("b")), groups, ["1", "2", "3", "4", "5"], 2))
    ['3', '4']
    >>> sorted(left_out(BookieGroups(frozenset("a"), frozenset("b")), groups, ["1", "3", "4", "5"], 2))
    ['4']
    """
    primary = {bookie for name in wanted.primary for bookie in groups.get(name, ())}
    allowed = set(primary)
    if len(primary.intersection(writable)) < ensemble_size:
        allowed |= {bookie for name in wanted.secondary for bookie in groups.get(name, ())}
    grouped = {bookie for bookies in groups.values() for bookie in bookies}
    return frozenset(grouped - allowed)
