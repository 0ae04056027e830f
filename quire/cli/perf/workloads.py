"""Workloads of OpenMessaging's benchmark, by the names of their files.

workloads.txt has one per line. Source: the folder workloads of openmessaging/benchmark (2025), whose names and numbers
it has: topics, partitions of each, bytes of a message, subscriptions of a topic, consumers of a subscription, producers
of a topic, messages per second, GB of backlog, minutes, part of the payload that is random, and number of payloads.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from quire.cli.messages.access import FlagsError

UNLIMITED = 10_000_000
"""Rate that stands for as fast as possible, as 0 does."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload."""

    name: str
    topics: int
    partitions: int
    size: int
    subscriptions: int
    consumers: int
    """Number for each subscription."""
    producers: int
    """Number for each topic."""
    rate: int
    """Messages per second over all topics; 0: as fast as possible."""
    backlog_gb: int
    """Backlog that is built up while consumers are stopped, and then read; 0: none."""
    minutes: int
    random_ratio: float
    payloads: int
    """Number of payloads that are chosen from; 0: all messages have the same."""


@cache
def workloads() -> dict[str, Workload]:
    """Return all workloads, by name."""
    found = {}
    for line in (Path(__file__).with_suffix(".txt")).read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            continue
        name, *numbers, ratio, payloads = line.split()
        topics, partitions, size, subscriptions, consumers, producers, rate, backlog_gb, minutes = map(int, numbers)
        found[name] = Workload(
            name,
            topics,
            partitions,
            size,
            subscriptions,
            consumers,
            producers,
            0 if rate >= UNLIMITED else rate,
            backlog_gb,
            minutes,
            float(ratio),
            int(payloads),
        )
    return found


def workload(name: str) -> Workload:
    """Return a workload; ".yaml" may be left out. Raises FlagsError with the nearest names."""
    found = workloads().get(name.removesuffix(".yaml"))
    if found is None:
        near = difflib.get_close_matches(name, workloads(), 3)
        hint = f"; did you mean {', '.join(near)}?" if near else "; `quire bench --list` lists them"
        raise FlagsError(f"there is no workload {name!r}{hint}")
    return found
