"""Metrics of tracing."""

from __future__ import annotations

from broker.tracing.tracing import BrokerTracing
from quire.service.metrics import Metrics


def register_tracing(metrics: Metrics, tracing: BrokerTracing | None) -> None:
    """Register the numbers of spans. `tracing`: None: it is off, and they are 0."""
    metrics.counter(
        "quire_tracing_spans", "Spans recorded for traced messages", lambda: 0 if tracing is None else tracing.recorded
    )
    metrics.counter(
        "quire_tracing_spans_dropped",
        "Spans above quireTracingSpansPerSecond",
        lambda: 0 if tracing is None else tracing.dropped,
    )
