"""The parts of one history, drawn by its seed, and what they want of its servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from broker.ownership.bundles import even
from broker.ownership.values import default_policies, encode_json
from quire.metadata.errors import NodeExistsError
from quire.metadata.store import MetadataStore
from quire.wire.pulsar.names import NamespaceName
from simulation.life.deduplicating import Deduplicating
from simulation.life.deleting import Deleting
from simulation.life.expiring import Expiring
from simulation.life.leaving import Leaving
from simulation.life.part import Part, Stage
from simulation.life.quotas import Evicting, Excepting, Holding
from simulation.life.resting import Resting
from simulation.life.retaining import Retaining
from simulation.life.ruling import Ruling
from simulation.life.typed import Typed

PARTS: Final[tuple[type[Part], ...]] = (
    Deduplicating,
    Expiring,
    Leaving,
    Holding,
    Excepting,
    Evicting,
    Retaining,
    Deleting,
    Resting,
    Typed,
    Ruling,
)
KEYS: Final = {
    "keepAliveIntervalSeconds": 2,
    "brokerDeleteInactiveTopicsEnabled": "false",
    "brokerDeduplicationSnapshotFrequencyInSeconds": 1,
    "brokerDeduplicationSnapshotIntervalSeconds": 3,
}
"""Keys of every history with parts: rounds of checks are short, and what is deleted is in the parts' own namespaces."""


class Cast:
    """The parts of one history."""

    def __init__(self, stage: Stage, count: int) -> None:
        """Draw `count` parts."""
        rng = stage.universe.derive("cast")
        chosen = rng.sample(range(len(PARTS)), count)
        self.parts: Sequence[Part] = [PARTS[number](stage) for number in sorted(chosen)]
        self.keys: dict[str, object] = {**KEYS, "brokerDeduplicationEntriesInterval": rng.choice((2, 7, 1000))}
        for part in self.parts:
            self.keys.update(part.keys)
            self.keys.update(part.drawn_keys)

    async def prepare(self, store: MetadataStore, cluster: str) -> None:
        """Make the namespaces of the parts."""
        for part in self.parts:
            name = NamespaceName.parse(f"public/{part.name}")
            policies = default_policies(even(name, 1), [cluster]) | dict(part.policies)
            try:
                await store.create(f"/admin/policies/{name}", encode_json(policies), make_parents=True)
            except NodeExistsError:
                pass

    def start(self) -> None:
        for part in self.parts:
            part.start()

    async def settle(self) -> None:
        """Check all parts, after the last fault. Raises ViolationError."""
        async with trio.open_nursery() as nursery:
            for part in self.parts:
                part.healed = True
                nursery.start_soon(part.settle, name=f"end of {part.name}")

    def summary(self) -> str:
        """Return what the parts saw."""
        found = []
        for part in self.parts:
            counts = " ".join(f"{count} {what}" for what, count in sorted(part.counts.items()))
            found.append(f"{part.name} ({counts})" if counts else part.name)
        return ", ".join(found)
