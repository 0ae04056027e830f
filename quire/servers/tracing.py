"""OpenTelemetry behind the broker's tracing: a provider with a bounded queue, and OTLP over HTTP.

The packages are those of the extra `otel`; they are imported only if tracing is configured. The queue and the exporter
have a thread of their own, made by OpenTelemetry's SDK.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from broker.tracing.config import TracingOptions
from broker.tracing.tracing import Attributes, BrokerTracing
from quire.distribution import installed_version
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.wire.pulsar.trace_context import TraceParent
from quire.world.doors import World

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = get_logger(__name__)

QUEUE_MAX: Final = 2048
"""Spans that wait for the exporter; further ones are dropped."""
STOP_S: Final = 5.0
EXPORT_S: Final = 5.0


@asynccontextmanager
async def open_tracing(world: World, options: TracingOptions) -> AsyncGenerator[BrokerTracing | None, None]:
    """Open the tracing that is configured; None: it is off. ConfigError: the packages are not installed.

    On exit the spans that wait are sent, for STOP_S at most."""
    if not options.namespaces:
        yield None
        return
    provider = await world.offload.run(lambda: _provider(options), name="tracing")
    try:
        yield BrokerTracing(OtelSink(provider), options.namespaces, options.spans_per_second_max, world.clock.wall_ms)
    finally:
        with trio.move_on_after(STOP_S, shield=True):
            await world.offload.run(provider.shutdown, name="end of tracing")


def _provider(options: TracingOptions) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"quireTracingNamespaces is set, and {error.name} is not installed: pip install 'quire-broker[otel]', or "
            "remove the key"
        ) from error
    made = TracerProvider(
        resource=Resource.create({"service.name": "quire-broker", "service.version": installed_version()}),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=options.endpoint, timeout=EXPORT_S)
    made.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE_MAX))
    return made


class OtelSink:
    """Spans of OpenTelemetry's SDK, made with the times that the broker noted."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._tracer = provider.get_tracer("quire.broker", installed_version())

    def add(self, name: str, parent: TraceParent, start_ns: int, end_ns: int, attributes: Attributes) -> None:
        trace = self._trace
        context = trace.SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=trace.TraceFlags(1))
        span = self._tracer.start_span(
            name,
            trace.set_span_in_context(trace.NonRecordingSpan(context)),
            kind=trace.SpanKind.INTERNAL,
            start_time=start_ns,
            attributes=dict(attributes),
        )
        if "error.type" in attributes:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end_ns)
