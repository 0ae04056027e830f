"""Producer and consumer with OpenTelemetry spans: a message's way in one trace. Needs the extra `otel`.

    tracer = provider.get_tracer("orders")
    producer = TracedProducer(await client.producer("orders"), tracer)
    await producer.send([b"one"])                       # span "send orders", its context in the property traceparent
    consumer = TracedConsumer(await client.consumer("orders", "audit"), tracer)
    for message in await consumer.receive():            # span "process orders", in the trace of its producer
        with message:
            ...                                         # spans made here are below it
        message.acknowledge()

Each message is an entry of its own, since the broker does not look into a batch. A message whose trace is not sampled
has its context too, with the flag unset.
Source: OpenTelemetry's semantic conventions for messaging spans; W3C Trace Context.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import Token
from types import TracebackType

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from quire.client.consumer import Consumer
from quire.client.packing import pack
from quire.client.producer import Producer
from quire.client.unpacking import Messages, Opener

_PROPAGATOR = TraceContextTextMapPropagator()


def _attributes(topic: str, operation: str, kind: str) -> dict[str, str]:
    return {
        "messaging.system": "pulsar",
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }


class TracedProducer:
    """Producer whose messages each have a span, from `send` to their receipt. It takes the producer's `on_receipts`."""

    def __init__(self, producer: Producer, tracer: Tracer) -> None:
        self.producer = producer
        self._tracer = tracer
        self._spans: deque[Span] = deque()
        """Spans of messages without receipt, in order; as many as the producer may have pending."""
        producer.on_receipts = self._received

    async def send(
        self,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        properties: Sequence[Sequence[tuple[str, str]] | None] | None = None,
    ) -> None:
        """Send messages, given as parallel columns, in order, below the current span. Waits and raises as
        `Producer.send`, and ValueError as `pack`; spans of messages that were not queued end with an error."""
        topic = self.producer.topic
        made: list[Span] = []
        marked: list[list[tuple[str, str]]] = []
        for row in range(len(values)):
            span = self._tracer.start_span(
                f"send {topic}", kind=SpanKind.PRODUCER, attributes=_attributes(topic, "send", "send")
            )
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
            own = (properties[row] if properties is not None else None) or ()
            marked.append([*((name, value) for name, value in own if name not in carrier), *carrier.items()])
            made.append(span)
        left = deque(made)
        try:
            for packed in pack(values, keys, marked, batch=False):
                self._spans.append(left[0])
                try:
                    await self.producer.send([packed])
                except BaseException:
                    if self._spans and self._spans[-1] is left[0]:
                        self._spans.pop()
                    raise
                left.popleft()
        except BaseException as error:
            for span in left:
                _fail(span, error)
            raise

    async def flush(self) -> None:
        """Wait until everything sent has its receipt. Raises ClientError; the spans without receipt then end."""
        try:
            await self.producer.flush()
        except Exception as error:
            self._give_up(error)
            raise

    async def close(self) -> None:
        """Close the producer; spans of messages without receipt end with an error."""
        await self.producer.close()
        self._give_up(RuntimeError("the producer was closed"))

    def _received(self, count: int) -> None:
        for _ in range(min(count, len(self._spans))):
            self._spans.popleft().end()

    def _give_up(self, error: Exception) -> None:
        while self._spans:
            _fail(self._spans.popleft(), error)


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


class TracedMessage:
    """A received message. `with` it, its span is the current one; the span ends with the block."""

    def __init__(self, consumer: Consumer, messages: Messages, row: int, tracer: Tracer) -> None:
        self.value = messages.values[row]
        self.key = messages.keys[row]
        self.properties = dict(messages.properties[row])
        self.id = messages.ledger_ids[row], messages.entry_ids[row]
        """Ledger and entry."""
        self._consumer = consumer
        topic = consumer.topic
        attributes = _attributes(topic, "process", "process") | {
            "messaging.message.id": f"{self.id[0]}:{self.id[1]}",
            "messaging.destination.subscription.name": consumer.subscription,
        }
        above = _PROPAGATOR.extract(self.properties)
        self.span = tracer.start_span(f"process {topic}", above, kind=SpanKind.CONSUMER, attributes=attributes)
        self._token: Token[Context] | None = None

    def acknowledge(self) -> None:
        """Send its acknowledgement, as `Consumer.acknowledge`."""
        self._consumer.acknowledge([self.id])

    def __enter__(self) -> TracedMessage:
        self._token = contexts.attach(trace.set_span_in_context(self.span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._token is not None
        contexts.detach(self._token)
        if error is None:
            self.span.end()
        else:
            _fail(self.span, error)


class TracedConsumer:
    """Consumer whose messages each have a span, in the trace of their producer."""

    def __init__(self, consumer: Consumer, tracer: Tracer) -> None:
        self.consumer = consumer
        self._tracer = tracer
        self._opener = Opener()

    async def receive(self) -> list[TracedMessage]:
        """Return all received messages, after waiting for at least one entry. Raises as `Consumer.receive`, and
        CorruptEntryError, EncryptedEntryError."""
        deliveries = await self.consumer.receive()
        messages = Messages()
        self._opener.open(deliveries, messages)
        return [TracedMessage(self.consumer, messages, row, self._tracer) for row in range(len(messages))]
