"""Rates from counts at the last two rounds (pure).

A round is made every statsUpdateFrequencyInSecs, and a rate is that of the time between the last two, as in Pulsar: it
is 0 until the first round after something was counted. Nothing is added to the work of a message, only what is counted
anyway is read. Source: Pulsar's Rate.calculateRate and BrokerService.updateRates.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import NamedTuple

from quire.service.measuring.summaries import LATENCY_MS, Histogram, Times

MEASURED_IN_STEP = 200
"""Topics, producers, subscriptions and consumers that are read before other tasks run."""


class Rates(NamedTuple):
    """Counts, or rates per second. What has no meaning for the thing is 0."""

    messages_in: float = 0
    bytes_in: float = 0
    chunks_in: float = 0
    messages_out: float = 0
    bytes_out: float = 0
    redelivered: float = 0
    acked: float = 0
    expired: float = 0
    entries_in: float = 0
    entries_read: float = 0
    """Entries read from the cache or at bookies."""
    cache_missed: float = 0
    """Reads that found nothing in the cache."""

    def since(self, before: Rates, seconds: float) -> Rates:
        """Return the rates between two counts.

        >>> Rates(messages_in=30).since(Rates(messages_in=10), 10.0).messages_in
        2.0
        """
        return Rates._make(
            [0 if one == other else (one - other) / seconds for one, other in zip(self, before, strict=True)]
        )


NOTHING = Rates()


class BrokerTimes:
    """Histograms of a broker, in milliseconds."""

    __slots__ = ("dispatch", "publish")

    def __init__(self) -> None:
        self.publish = Times(LATENCY_MS)
        """Times from the arrival of entries until they are stored."""
        self.dispatch = Histogram()
        """Times from the arrival of entries until they are given to a consumer's connection, of deliveries that reach
        the end of their topic."""


class Measures:
    """Rates as of the last round, of topics, producers, subscriptions and consumers; the caller makes the rounds."""

    def __init__(self, interval_s: float) -> None:
        """`interval_s`: time between rounds, for the first one."""
        self._interval_s = interval_s
        self._at: float | None = None
        self._counts: dict[object, Rates] = {}
        """Counts at the last round, of what had any."""
        self._rates: dict[object, Rates] = {}

    def of(self, measured: object) -> Rates:
        """Return the rates of a topic, producer, subscription or consumer; 0 for what was not measured."""
        return self._rates.get(measured, NOTHING)

    def forget(self, measured: object) -> None:
        """Keep nothing of a producer or consumer that has left, which would stay in memory until the next round."""
        self._counts.pop(measured, None)
        self._rates.pop(measured, None)

    def round(self, now: float, counted: Iterable[tuple[object, Rates]]) -> Generator[None, None, None]:
        """Measure everything: one element per step of the event loop. `now`: time of the event loop in seconds.

        >>> measures = Measures(10.0)
        >>> for now, count in (10.0, 50), (20.0, 80): list(measures.round(now, [("topic", Rates(messages_in=count))]))
        []
        []
        >>> measures.of("topic").messages_in, measures.of("other").messages_in
        (3.0, 0)
        """
        seconds = self._interval_s if self._at is None else max(now - self._at, 1e-3)
        counts: dict[object, Rates] = {}
        rates: dict[object, Rates] = {}
        for number, (measured, found) in enumerate(counted, 1):
            if not number % MEASURED_IN_STEP:
                yield
            if found == NOTHING:
                continue
            counts[measured] = found
            before = self._counts.get(measured, NOTHING)
            if before != found:
                rates[measured] = found.since(before, seconds)
        self._at, self._counts, self._rates = now, counts, rates
