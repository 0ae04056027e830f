"""Load of this broker by bundle, and the decision when to report it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass

from broker.ownership.bundles import Bundle
from broker.ownership.config import OwnershipOptions
from broker.ownership.values import BundleLoad
from quire.wire.pulsar.names import TopicName

TOPICS_IN_STEP = 100
"""Topics that are measured before other tasks run."""


@dataclass(frozen=True, slots=True)
class TopicCounters:
    """Counts of a loaded topic since it was loaded, and its clients."""

    name: TopicName
    messages_in: int
    bytes_in: int
    messages_out: int
    producers: int
    consumers: int


class Meter:
    """Rates from successive counts."""

    def __init__(self, now: float) -> None:
        self._measured_at = now
        self._before: dict[TopicName, TopicCounters] = {}
        self.topic_rates: dict[TopicName, float] = {}
        """Messages per second, in and out, of every loaded topic, as last measured."""

    def measure(
        self,
        now: float,
        counters: Iterable[TopicCounters],
        bundle_of: Callable[[TopicName], Bundle | None],
        owned: Iterable[Bundle],
    ) -> Generator[None, None, dict[str, BundleLoad]]:
        """Measure every owned bundle, by `str(bundle)`: one element of the generator per step of the event loop.

        Bytes out are not counted, but estimated from the messages out and the average size of incoming messages."""
        elapsed = max(now - self._measured_at, 1e-3)
        sums = {str(bundle): [0.0] * 7 for bundle in owned}
        current: dict[TopicName, TopicCounters] = {}
        rates: dict[TopicName, float] = {}
        for count, each in enumerate(counters, 1):
            if not count % TOPICS_IN_STEP:
                yield
            current[each.name] = each
            bundle = bundle_of(each.name)
            total = None if bundle is None else sums.get(str(bundle))
            if total is None:
                continue
            before = self._before.get(each.name)
            if before is None or before.messages_in > each.messages_in or before.messages_out > each.messages_out:
                before = TopicCounters(each.name, 0, 0, 0, 0, 0)  # loaded, or loaded again, since
            messages_in = (each.messages_in - before.messages_in) / elapsed
            messages_out = (each.messages_out - before.messages_out) / elapsed
            size = each.bytes_in / each.messages_in if each.messages_in else 0.0
            rates[each.name] = messages_in + messages_out
            more = (
                1,
                each.producers,
                each.consumers,
                messages_in,
                messages_out,
                (each.bytes_in - before.bytes_in) / elapsed,
                messages_out * size,
            )
            for index, value in enumerate(more):
                total[index] += value
        self._measured_at, self._before, self.topic_rates = now, current, rates
        return {
            bundle: BundleLoad(
                topics=int(total[0]),
                producers=int(total[1]),
                consumers=int(total[2]),
                messages_in=total[3],
                messages_out=total[4],
                bytes_in=total[5],
                bytes_out=total[6],
            )
            for bundle, total in sums.items()
        }


def should_report(
    reported: Mapping[str, BundleLoad],
    current: Mapping[str, BundleLoad],
    since_s: float,
    options: OwnershipOptions,
) -> bool:
    """Return whether a report is due: the bundles have changed, a rate has changed by more than the threshold, or the
    last report is old."""
    if reported.keys() != current.keys():
        return True
    if since_s >= options.report_max_s and dict(reported) != dict(current):
        return True
    return any(
        _has_changed(sum(map(rate, reported.values())), sum(map(rate, current.values())), floor, options)
        for rate, floor in _FIGURES
    )


def _has_changed(before: float, now: float, floor: float, options: OwnershipOptions) -> bool:
    change = abs(now - before)
    return change > floor and change > before * options.report_threshold_percent / 100


_FIGURES: tuple[tuple[Callable[[BundleLoad], float], float], ...] = (
    (lambda load: load.message_rate, 10.0),
    (lambda load: load.byte_rate, 10_000.0),
    (lambda load: load.topics, 0.0),
    (lambda load: load.producers + load.consumers, 0.0),
)
"""Return the compared values, and the change of each below which it is noise."""
