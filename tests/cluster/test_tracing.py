"""A message's way from producer to consumer in one trace, with a server process and a collector by OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Tracer

from quire.client.client import open_client
from quire.client.consumer import ConsumerOptions
from quire.client.tracing.messages import TracedConsumer, TracedMessage, TracedProducer
from quire.world.real import real_world
from tests.support.collector import Collector, collector
from tests.support.server import StandaloneProcess, standalone

pytestmark = [pytest.mark.cluster, pytest.mark.real_clock]
TOPIC = "persistent://public/default/orders"


@contextmanager
def tracer(found: Collector, *, share: float = 1.0) -> Iterator[Tracer]:
    """Yield the tracer of an application that sends its spans to the collector at the end of the block."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), sampler=TraceIdRatioBased(share), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=found.url)))
    try:
        yield provider.get_tracer("shop")
    finally:
        provider.shutdown()


async def send_and_process(server: StandaloneProcess, made: Tracer, values: list[bytes]) -> list[TracedMessage]:
    """Send messages below one span, and process all of them; return them in order."""
    received: list[TracedMessage] = []
    async with open_client(real_world(), server.url) as client:
        consumer = TracedConsumer(await client.consumer(TOPIC, "audit", ConsumerOptions(earliest=True)), made)
        producer = TracedProducer(await client.producer(TOPIC), made)
        with made.start_as_current_span("checkout"):
            await producer.send(values, properties=[[("kind", "test")]] * len(values))
        await producer.flush()
        while len(received) < len(values):
            for message in await consumer.receive():
                with message, made.start_as_current_span("book"):
                    received.append(message)
                message.acknowledge()
        await producer.close()
    return received


async def test_one_trace_has_the_spans_of_producer_broker_and_consumer(tmp_path: Path) -> None:
    with collector() as found:
        conf: dict[str, object] = {"quireTracingNamespaces": "public/default", "quireTracingEndpoint": found.url}
        with standalone(tmp_path, conf) as server:
            with tracer(found) as made:
                [message] = await send_and_process(server, made, [b"one"])
            assert message.value == b"one"
            assert message.properties["kind"] == "test"
            assert server.stop() == 0, "a stop sends what waits"
    names = {f"{operation} {TOPIC}" for operation in ("send", "store", "dispatch", "process")} | {"checkout", "book"}
    assert sorted(span.name for _, span in found.spans) == sorted(names)
    spans = {span.name: span for _, span in found.spans}
    assert {span.trace_id for span in spans.values()} == {spans["checkout"].trace_id}
    sent = spans[f"send {TOPIC}"]
    assert sent.parent_span_id == spans["checkout"].span_id
    for operation in ("store", "dispatch", "process"):
        assert spans[f"{operation} {TOPIC}"].parent_span_id == sent.span_id
    assert spans["book"].parent_span_id == spans[f"process {TOPIC}"].span_id
    services = {span.name: service for service, span in found.spans}
    assert services[f"store {TOPIC}"] == services[f"dispatch {TOPIC}"] == "quire-broker"
    assert services[f"process {TOPIC}"] == "shop"
    store, dispatch = spans[f"store {TOPIC}"], spans[f"dispatch {TOPIC}"]
    assert store.start_time_unix_nano <= store.end_time_unix_nano <= dispatch.end_time_unix_nano
    attributes = {each.key: each.value.string_value for each in dispatch.attributes}
    assert attributes["messaging.destination.subscription.name"] == "audit"
    assert attributes["messaging.message.id"] == f"{message.id[0]}:{message.id[1]}"


async def test_messages_that_are_not_sampled_and_namespaces_that_are_not_named_have_no_spans_of_the_broker(
    tmp_path: Path,
) -> None:
    with collector() as found:
        conf: dict[str, object] = {"quireTracingNamespaces": "public/other", "quireTracingEndpoint": found.url}
        with standalone(tmp_path / "other", conf) as server:
            with tracer(found) as made:
                await send_and_process(server, made, [b"one"])
            assert server.stop() == 0
        assert {service for service, _ in found.spans} == {"shop"}
        found.spans.clear()
        conf = {"quireTracingNamespaces": "public/default", "quireTracingEndpoint": found.url}
        with standalone(tmp_path / "unsampled", conf) as server:
            with tracer(found, share=0.0) as made:
                [message] = await send_and_process(server, made, [b"one"])
            assert int(message.properties["traceparent"].rpartition("-")[2], 16) & 1 == 0
            assert server.stop() == 0
        assert found.spans == []
