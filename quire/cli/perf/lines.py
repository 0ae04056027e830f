"""Lines of a run, in the words and with the digits of pulsar-perf, which scripts search for (pure).

Latencies of producers and transactions are in us with a fraction of a millisecond shown, those of consumers and
readers in whole ms, because a message carries the ms of its publishing. Mbit are 1024 * 1024 bits.
Source: PerformanceProducer, PerformanceConsumer, PerformanceReader and PerformanceTransaction of pulsar-testclient.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.cli.perf.histogram import PERCENTILES, LatencyHistogram

_NAMES = ("med", "95pct", "99pct", "99.9pct", "99.99pct", "99.999pct")
_OF_INTERVALS = 5
"""Percentiles in the line of an interval; the last ones have one more."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Messages and bytes of some seconds."""

    messages: int
    size_bytes: int
    seconds: float
    failed: int = 0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0

    @property
    def mbits(self) -> float:
        """Mbit per second."""
        return self.size_bytes * 8 / 1024 / 1024 / self.seconds if self.seconds > 0 else 0.0

    @property
    def failures(self) -> float:
        """Failed messages per second."""
        return self.failed / self.seconds if self.seconds > 0 else 0.0


def latencies_us(found: LatencyHistogram, *, last: bool, name: str = "Latency") -> str:
    """Return the part of a line with latencies in us."""
    count = len(PERCENTILES) if last else _OF_INTERVALS
    values = [f"{value / 1000:7.3f}" for value in found.percentiles(PERCENTILES[:count])]
    parts = [f"{name}: mean: {found.mean() / 1000:7.3f} ms", *map("{}: {}".format, _NAMES, values)]
    return " - ".join([*parts, f"Max: {found.maximum / 1000:7.3f}"])


def latencies_ms(found: LatencyHistogram, *, last: bool) -> str:
    """Return the part of a line with latencies in ms."""
    count = len(PERCENTILES) if last else _OF_INTERVALS
    parts = [f"Latency: mean: {found.mean():.3f} ms"]
    parts += map("{}: {}".format, _NAMES, found.percentiles(PERCENTILES[:count]))
    return " - ".join([*parts, f"Max: {found.maximum}"])


def produced(total: int, now: Throughput, found: LatencyHistogram) -> str:
    """Return the line of an interval of a producer."""
    return (
        f"Throughput produced: {total:7d} msg --- {now.rate:8.1f} msg/s --- {now.mbits:8.1f} Mbit/s"
        f" --- failure {now.failures:8.1f} msg/s --- {latencies_us(found, last=False)}"
    )


def received(total: int, now: Throughput, found: LatencyHistogram, *, reader: bool) -> str:
    """Return the line of an interval of a consumer or reader."""
    return (
        f"{'Read throughput' if reader else 'Throughput received'}: {total:7d} msg --- {now.rate:.3f} msg/s"
        f" --- {now.mbits:.3f} Mbit/s --- {latencies_ms(found, last=False)}"
    )


def transactions_in_interval(ended: int, failed: int, rate: float) -> str:
    """Return the line about transactions of an interval of a producer or consumer."""
    return (
        f"--- Transaction: {ended} transaction end successfully --- {failed} transaction end failed"
        f" --- {rate:.3f} Txn/s"
    )


def transactions_at_end(ended: int, failed: int, opened: int, not_opened: int, rate: float) -> str:
    """Return the closing line about transactions of a producer or consumer."""
    return (
        f"--- Transaction: {ended} transaction end successfully --- {failed} transaction end failed"
        f" --- {opened} transaction open successfully --- {not_opened} transaction open failed --- {rate:.3f} Txn/s"
    )


def aggregated(whole: Throughput, *, sent: bool) -> str:
    """Return the closing line about the throughput."""
    return (
        f"Aggregated throughput stats --- {whole.messages} records {'sent' if sent else 'received'}"
        f" --- {whole.rate:.3f} msg/s --- {whole.mbits:.3f} Mbit/s"
    )


def aggregated_latency_us(found: LatencyHistogram) -> str:
    """Return the closing line about the latencies of a producer."""
    return f"Aggregated latency stats --- {latencies_us(found, last=True)}"


def aggregated_latency_ms(found: LatencyHistogram) -> str:
    """Return the closing line about the latencies of a consumer or reader."""
    return f"Aggregated latency stats --- {latencies_ms(found, last=True)}"


def own_cost(cpu_s: float, seconds: float, messages: int, late_s: float) -> str:
    """Return the line about the load itself, which pulsar-perf does not have.

    `late_s`: longest time that a message was written after its moment, 0 for a load without a rate."""
    share = cpu_s / seconds if seconds > 0 else 0.0
    each = cpu_s / messages * 1e6 if messages else 0.0
    late = f" --- latest message {late_s * 1000:.3f} ms behind its moment" if late_s else ""
    return f"Load generator stats --- {share:.2f} of a processor --- {each:.1f} us CPU/msg{late}"


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """Outcomes of a run of transactions, or of tasks without them."""

    ended: int = 0
    not_ended: int = 0
    opened: int = 0
    not_opened: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    sent: int = 0
    not_sent: int = 0


def transactions(total: int, rate: float, sends: LatencyHistogram, acks: LatencyHistogram, *, tasks: bool) -> str:
    """Return the line of an interval of `perf transaction`."""
    return (
        f"Throughput {'task' if tasks else 'transaction'}: {total:7d} --- {rate:7.3f}/s"
        f" --- {latencies_us(sends, last=False, name='SendLatency')}"
        f" --- {latencies_us(acks, last=False, name='AckLatency')}"
    )


def aggregated_transactions(counts: TransactionCounts, seconds: float, *, tasks: bool) -> str:
    """Return the closing line of `perf transaction` about what was done."""
    total = counts.ended + counts.not_ended
    rate = total / seconds if seconds > 0 else 0.0
    messages = (
        f" --- {counts.not_acknowledged} message ack failed --- {counts.not_sent} message send failed"
        f" --- {counts.acknowledged} message ack success --- {counts.sent} message send success"
    )
    if tasks:
        return f"Aggregated throughput stats --- {total} task executed --- {rate:.3f} task/s{messages}"
    return (
        f"Aggregated throughput stats --- {total} transaction executed --- {rate:7.3f} transaction/s"
        f" --- {counts.opened} transaction open successfully --- {counts.not_opened} transaction open failed"
        f" --- {counts.ended} transaction end successfully --- {counts.not_ended} transaction end failed{messages}"
    )


def aggregated_transaction_latency(found: LatencyHistogram, *, acks: bool) -> str:
    """Return a closing line of `perf transaction` about latencies."""
    return f"Messages {'ack' if acks else 'send'} aggregated latency stats --- {latencies_us(found, last=True)}"
