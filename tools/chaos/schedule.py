"""Schedule of faults: process, time and kind, all from a seed. Pure.

There are four groups of processes. In each at most one is hurt at a time, and the next only when all of the group are
ready again: that is what the cluster must bear (one broker of two, one bookie more than none, one ZooKeeper node of
three). Faults of different groups may overlap. The process is drawn when the fault is due, from those that are ready.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from tools.local_cluster.plan import Kind

FAULTS_PER_MINUTE = 8.5
QUIET_SHARE = 0.15
"""Fraction of the whole time, at the end, without new faults."""
FIRST_S = 3.0
"""Time before the first fault."""


class How(Enum):
    KILL = "SIGKILL"
    PAUSE = "SIGSTOP"


class Group(Enum):
    """Targets of a fault. The auditor is the auto recovery that has this role at the time."""

    BROKER = "broker"
    BOOKIE = "bookie"
    ZOOKEEPER = "ZooKeeper"
    AUDITOR = "auditor"

    @property
    def kind(self) -> Kind:
        return _KINDS[self]


_KINDS = {
    Group.BROKER: Kind.BROKER,
    Group.BOOKIE: Kind.BOOKIE,
    Group.ZOOKEEPER: Kind.ZOOKEEPER,
    Group.AUDITOR: Kind.RECOVERY,
}

DECK = (
    (Group.BROKER, How.KILL),
    (Group.BOOKIE, How.KILL),
    (Group.BROKER, How.PAUSE),
    (Group.BOOKIE, How.PAUSE),
    (Group.AUDITOR, How.KILL),
    (Group.ZOOKEEPER, How.KILL),
    (Group.BOOKIE, How.KILL),
    (Group.BROKER, How.KILL),
    (Group.ZOOKEEPER, How.PAUSE),
    (Group.AUDITOR, How.PAUSE),
)
"""Kinds of faults, repeated, each time shuffled within halves, so that every kind comes soon, and equally often."""

DURATIONS_S = {How.KILL: (0.5, 5.0), How.PAUSE: (1.0, 9.0)}
"""Duration for which it stays dead, or hangs. Both shorter and longer than a session (3 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of the schedule. Seconds from the start of the load."""

    at_s: float
    group: Group
    how: How
    for_s: float
    choice: float
    """Choice among the group's candidates: 0 the first, almost 1 the last."""


def draw(seed: int, seconds: float, count: int | None = None, *, without: Collection[Group] = ()) -> list[Fault]:
    """Return the faults of a run of so many seconds, in order.

    There are `count` of them if that is given, and none for the groups `without`.

    >>> draw(7, 300.0) == draw(7, 300.0), len(draw(7, 300.0)) >= 40
    (True, True)
    """
    rng = random.Random(seed)
    wanted = max(4, round(FAULTS_PER_MINUTE * seconds / 60)) if count is None else count
    end = max(FIRST_S + 1.0, seconds * (1 - QUIET_SHARE))
    step = (end - FIRST_S) / wanted
    made = []
    dealt: list[tuple[Group, How]] = []
    for number in range(wanted):
        if not dealt:
            half = len(DECK) // 2
            for part in (DECK[:half], DECK[half:]):
                dealt += [each for each in rng.sample(part, len(part)) if each[0] not in without]
        group, how = dealt.pop(0)
        # Not longer than the rest, or there is no quiet end; and short runs must reach their faults.
        longest = min(DURATIONS_S[how][1], max(1.0, seconds / 8))
        made.append(
            Fault(
                at_s=FIRST_S + (number + rng.random()) * step,
                group=group,
                how=how,
                for_s=rng.uniform(DURATIONS_S[how][0], longest),
                choice=rng.random(),
            )
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """An injected fault: times in microseconds of the wall clock."""

    group: Group
    how: How
    name: str
    at_us: int
    healed_us: int
    """Time at which it was restarted, or resumed."""
    ready_us: int
    """Time at which it served again."""
