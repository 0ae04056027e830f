"""Draws of a seed for a history of ledgers: number of hosts, limits, faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from quire.ledger.bookies.pool import WireProtocol
from quire.ledger.context import LedgerConfig
from quire.ledger.read_config import ReadConfig
from simulation.common import swarm

FAULTS = (*swarm.FAULTS, "hunt", "ambush")
"""Kinds of faults. ambush: links to some bookies of a ledger lag or lose messages just when its recovery begins; hunt:
a bookie that has acknowledged entries which others have not is crashed, and perhaps the writer after it."""
FAULTS_PER_SEED = range(4, len(FAULTS) + 1)

QUORUMS = ((1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 3), (4, 3, 2), (5, 3, 2), (4, 2, 2), (5, 3, 3))
"""(ensemble, write quorum, ack quorum)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSwarm(swarm.Swarm):
    """Draws for one history of ledgers."""

    clients: int
    quorums: tuple[tuple[int, int, int], ...]
    runs: tuple[int, ...]
    """Entries per append to choose from."""
    window: int
    """Maximum unconfirmed entries of a writer."""
    entries: tuple[int, int]
    """Entries of a ledger."""
    pace_s: float
    """Maximum pause of a writer between appends."""
    protocols: tuple[WireProtocol, ...]
    add_timeout_s: float
    read_timeout_s: float
    speculative_s: float
    explicit_lac_s: float
    delay_ensemble_change: bool
    ambush: float
    """Fraction of the recoveries that are disturbed."""

    def ledger_config(self, rng: random.Random) -> LedgerConfig:
        """Return the configuration of one incarnation of a client."""
        return LedgerConfig(
            protocol=rng.choice(self.protocols),
            add_timeout_s=self.add_timeout_s,
            read_timeout_s=self.read_timeout_s,
            reads=ReadConfig(
                speculative_first_s=self.speculative_s, speculative_max_s=self.speculative_s, long_poll_s=2.0
            ),
            quarantine_s=self.add_timeout_s,
            delay_ensemble_change=self.delay_ensemble_change,
            explicit_lac_interval_s=self.explicit_lac_s,
            recovery_window=rng.choice((4, 16, 128)),
            metadata_attempts=4,
        )


def draw_compaction(rng: random.Random) -> tuple[tuple[str, Any], ...]:
    """Draw how bookies write and compact entry logs; for some seeds as by default."""
    if rng.random() < 0.25:
        return ()
    minor_s = rng.choice((1, 3))
    ways = rng.choice(("shared", "shared", "whole", "whole", "ledgers"))
    return (
        ("entry_log_size_max", rng.choice((2048, 10_000, 100_000))),
        ("minor_interval_s", minor_s),
        ("major_interval_s", minor_s * rng.choice((2, 10))),
        ("minor_threshold", rng.choice((0.2, 0.5))),
        ("major_threshold", rng.choice((0.8, 0.99))),
        ("compaction_rate_entries", rng.choice((0, 100, 1000))),
        ("compaction_outstanding_max", rng.choice((5, 100_000))),
        ("transactional", ways == "whole"),
        ("log_per_ledger", ways == "ledgers"),
        ("ledger_logs_max", rng.choice((2, 10))),
        ("ledger_log_idle_s", rng.choice((1, 10))),
        ("keep_log_map", rng.random() < 0.5),
    )


def draw(rng: random.Random) -> LedgerSwarm:
    """Draw the options of a seed."""
    bookies = rng.randint(3, 6)
    spare = rng.choice((0, 1, 1, 2))
    possible = [each for each in QUORUMS if each[0] <= max(2, bookies - spare)]
    faults: Sequence[str] = rng.sample(FAULTS, rng.choice(FAULTS_PER_SEED))
    return LedgerSwarm(
        bookies=bookies,
        clients=rng.randint(3, 4),
        quorums=tuple(rng.sample(possible, rng.randint(1, min(3, len(possible))))),
        sizes=rng.choice(((10,), (10, 200), (1, 100, 3000), (20, 20_000))),
        runs=rng.choice(((1,), (1, 3), (2, 8), (1, 5, 20))),
        window=rng.choice((4, 20, 100)),
        entries=rng.choice(((5, 30), (20, 60), (60, 120))),
        pace_s=rng.choice((0.002, 0.02, 0.1)),
        protocols=rng.choice((("v2",), ("v2",), ("v3",), ("v2", "v3"))),
        group_wait_ms=rng.choice((0, 0, 1, 3)),
        flush_interval_ms=rng.choice((100, 500, 3000)),
        gc_wait_ms=rng.choice((1000, 5000, 300_000)),
        add_timeout_s=rng.choice((0.5, 1.0, 3.0)),
        read_timeout_s=rng.choice((0.5, 1.0, 3.0)),
        speculative_s=rng.choice((0.02, 0.2, 2.0)),
        session_timeout_s=rng.choice((1.0, 3.0)),
        explicit_lac_s=rng.choice((0.0, 0.0, 0.1)),
        delay_ensemble_change=rng.random() < 0.2,
        late=rng.choice((0.0, 0.05, 0.3)),
        latency_max_s=rng.choice((0.05, 0.5)),
        down_max=rng.randint(1, 2),
        overlap=rng.randint(1, 3),
        calm_s=rng.choice((0.1, 0.5, 1.0)),
        faults=tuple(sorted(faults)),
        ambush=rng.choice((0.4, 0.9)) if "ambush" in faults else 0.0,
        bookie_settings=draw_compaction(rng),
    )


def draw_house(swarm: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Draw several ledger directories, and compactions where `swarm` has none, on top of the rest."""
    journals, directories = rng.choice(((1, 2), (1, 3), (2, 2), (2, 3)))
    settings = swarm.bookie_settings
    while not settings:
        settings = draw_compaction(rng)
    return replace(swarm, journals=journals, directories=directories, bookie_settings=settings)


def draw_directories(swarm: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Draw the number of directories of the bookies, on top of the rest."""
    journals, directories = rng.choice(((1, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)))
    return replace(swarm, journals=journals, directories=directories)
