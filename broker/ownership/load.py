"""Placement of bundles: the leader's decisions from the reports of all brokers (pure).

Why this is hard: reports are old when they are used, each move costs the clients of a bundle a reconnection, and a
bundle that is moved takes its load with it. A decision must therefore improve the balance clearly, count the moves that
reports do not contain yet, and leave recently moved bundles alone; otherwise bundles move to and fro.

A broker's load is its messages in and out per second, and between equals the number of its bundles: what the original's
LeastLongTermMessageRate goes by. A bundle with a resource quota counts with it where bundles without an owner are given
to brokers, if it has less at present. Resources of the machine are not measured.
Source: names and numbers are those of the original's ModularLoadManager, ThresholdShedder and BundleSplitterTask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from broker.ownership.affinity.quotas import Expected
from broker.ownership.config import OwnershipOptions
from broker.ownership.values import BrokerReport, BundleLoad

RATE_MIN = 10.0
"""Messages per second below which differences are noise."""
NOTHING = Expected()
"""Expected loads where there are no quotas."""


def choose(
    reports: Mapping[str, BrokerReport], assigned: Mapping[str, Collection[str]], expected: Expected = NOTHING
) -> str | None:
    """Return the broker for one more bundle, None if there is none.

    `assigned`: bundles given to each since its report. Each counts with its expected load, or as much as an average
    one; bundles of reports count with what is measured, or with what is expected if that is more."""
    if not reports:
        return None
    bundles = sum(len(report.bundles) for report in reports.values())
    rates = {broker_id: _rate(report, expected) for broker_id, report in reports.items()}
    rate = sum(rates.values())
    counts = rate >= RATE_MIN
    mean = rate / bundles if bundles and counts else 0.0
    each = mean if expected.default is None else expected.default

    def load(broker_id: str) -> tuple[float, int, str]:
        report, more = reports[broker_id], assigned.get(broker_id, ())
        own = rates[broker_id] if counts else 0.0
        given = sum(expected.bundles.get(bundle, each) for bundle in more)
        return own + given, len(report.bundles) + len(more), broker_id

    return min(reports, key=load)


def _rate(report: BrokerReport, expected: Expected) -> float:
    if not expected.bundles:
        return report.message_rate
    quota = expected.bundles.get
    return sum(max(load.message_rate, quota(bundle, 0.0)) for bundle, load in report.bundles.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Planned move of a bundle to another broker."""

    bundle: str
    source: str
    destination: str


def placed(reports: Mapping[str, BrokerReport]) -> dict[str, set[str]]:
    """Return the bundles of each broker."""
    return {broker_id: set(report.bundles) for broker_id, report in reports.items()}


def to_isolate(
    reports: Mapping[str, BrokerReport],
    may_move: Callable[[str], bool],
    allowed: Callable[[str, Mapping[str, Collection[str]]], Collection[str]],
) -> list[Move]:
    """Return moves of bundles from brokers that may not serve them to the best one of those that may.

    `may_move`: whether a bundle has been in its place for long enough; `allowed`: the brokers that may serve it, by the
    bundles that each broker has after the moves so far."""
    moves: list[Move] = []
    given: dict[str, list[str]] = {}
    now = placed(reports)
    for source in sorted(reports):
        for bundle in sorted(reports[source].bundles):
            brokers = allowed(bundle, now)
            if source in brokers or not may_move(bundle):
                continue
            destination = choose({each: reports[each] for each in brokers}, given)
            if destination is not None:
                given.setdefault(destination, []).append(bundle)
                now[source].discard(bundle)
                now[destination].add(bundle)
                moves.append(Move(bundle=bundle, source=source, destination=destination))
    return moves


def to_shed(
    reports: Mapping[str, BrokerReport],
    may_move: Callable[[str], bool],
    options: OwnershipOptions,
    allowed: Callable[[str, Mapping[str, Collection[str]]], Collection[str]] | None = None,
) -> list[Move]:
    """Return moves from brokers above the average by more than the threshold to the least loaded one.

    Each move makes the two more alike. `may_move`: whether a bundle has been in its place for long enough; `allowed`:
    the brokers that may serve it (None: all), by the bundles that each broker has after the moves so far."""
    if len(reports) < 2:
        return []
    rates = {broker_id: report.message_rate for broker_id, report in reports.items()}
    average = sum(rates.values()) / len(rates)
    now = placed(reports)
    limit = average * (1 + options.shed_threshold_percent / 100) + RATE_MIN
    moves: list[Move] = []
    for source in sorted(rates, key=lambda each: (-rates[each], each)):
        bundles = reports[source].bundles
        left = len(bundles)
        for bundle in sorted(bundles, key=lambda each: (-bundles[each].message_rate, each)):
            if rates[source] <= limit or left < 2:
                break
            rate = bundles[bundle].message_rate
            takers = rates if allowed is None else allowed(bundle, now)
            destination = min(takers, key=lambda each: (rates[each], each), default=source)
            # The receiver must end up with clearly less than the giver had; otherwise bundles would move to and fro.
            if rate <= 0 or rates[source] - rates[destination] - rate < RATE_MIN or not may_move(bundle):
                continue
            moves.append(Move(bundle=bundle, source=source, destination=destination))
            rates[source] -= rate
            rates[destination] += rate
            now[source].discard(bundle)
            now[destination].add(bundle)
            left -= 1
    return moves


def is_too_large(load: BundleLoad, options: OwnershipOptions) -> bool:
    """Return whether the bundle should be split."""
    return (
        load.topics > options.bundle_topics_max
        or load.producers + load.consumers > options.bundle_sessions_max
        or load.message_rate > options.bundle_message_rate_max
        or load.byte_rate > options.bundle_bandwidth_mb_max * (1 << 20)
    )


def to_split(
    reports: Mapping[str, BrokerReport], counts: Mapping[str, int], options: OwnershipOptions
) -> list[tuple[str, str]]:
    """Return bundles to split, with their brokers.

    `counts`: the number of bundles of each namespace. A bundle of a single topic is left, because it would not become
    smaller. A namespace is not split beyond its maximum."""
    counted = Counter(counts)
    found: list[tuple[str, str]] = []
    for broker_id in sorted(reports):
        for bundle, load in sorted(reports[broker_id].bundles.items()):
            namespace = bundle.rpartition("/")[0]
            if load.topics < 2 or not is_too_large(load, options):
                continue
            if 0 < counted[namespace] < options.bundles_max:
                counted[namespace] += 1
                found.append((bundle, broker_id))
    return found
