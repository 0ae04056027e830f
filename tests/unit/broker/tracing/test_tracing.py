"""Tracing of a broker: which entries have spans, their times and parents, and the bound of spans in a second."""

from __future__ import annotations

import pytest

from broker.tracing.config import TracingOptions
from broker.tracing.tracing import STORED_MAX, Attributes, BrokerTracing
from quire.client.packing import pack
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.trace_context import TraceParent, parse_traceparent, trace_parent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"
TOPIC = TopicName.parse("persistent://public/traced/t")
OTHER = TopicName.parse("persistent://public/default/t")


class Spans:
    """Sink that keeps what it gets."""

    def __init__(self) -> None:
        self.found: list[tuple[str, TraceParent, int, int, Attributes]] = []

    def add(self, name: str, parent: TraceParent, start_ns: int, end_ns: int, attributes: Attributes) -> None:
        self.found.append((name, parent, start_ns, end_ns, attributes))


class Inner:
    """Sink of an append, in its order."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.calls.append((ledger_id, first_entry_id, count))

    def failed(self, error: Exception) -> None:
        self.calls.append(error)


class Wall:
    """Wall clock, set by the test."""

    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def entries(*parents: str | None) -> list[bytes]:
    properties = [None if each is None else [("a", "b"), ("traceparent", each)] for each in parents]
    return [each.encode("p", 0, 1) for each in pack([b"x"] * len(parents), properties=properties, batch=False)]


def made(limit: int = 100) -> tuple[BrokerTracing, Spans, Wall]:
    spans, wall = Spans(), Wall()
    return BrokerTracing(spans, ["public/traced"], limit, wall), spans, wall


def test_the_context_of_an_entry_is_found_in_its_properties_and_an_invalid_one_is_none() -> None:
    parent = TraceParent(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, sampled=True)
    invalid = "ff" + PARENT[2:]
    found = [trace_parent(entry) for entry in entries(PARENT, None, invalid, UNSAMPLED)]
    assert found == [parent, None, None, parent._replace(sampled=False)]
    assert trace_parent(b"") is trace_parent(b"\x0e\x01junk") is None
    assert parse_traceparent("00-1") is parse_traceparent(PARENT.replace("b7ad6b7169203331", "0" * 16)) is None


def test_a_value_that_looks_like_a_property_is_not_taken_for_one() -> None:
    [packed] = pack([b"\x0a\x0btraceparent\x12\x37" + PARENT.encode()], batch=False)
    assert trace_parent(packed.encode("p", 0, 1)) is None


def test_a_sampled_entry_has_a_span_until_it_is_stored_and_one_until_it_is_delivered() -> None:
    tracing, spans, wall = made()
    inner = Inner()
    payloads = entries(None, PARENT, UNSAMPLED)
    sink = tracing.sink(TOPIC, payloads, inner)
    wall.ms += 5
    sink.confirmed(7, 40, 1)
    sink.confirmed(7, 41, 2)
    wall.ms += 20
    tracing.delivered(TOPIC, "s", 7, range(40, 43), payloads)
    assert inner.calls == [(7, 40, 1), (7, 41, 2)]
    store, dispatch = spans.found
    assert (store[0], store[2], store[3]) == (f"store {TOPIC.full}", 1_000_000_000_000, 1_000_005_000_000)
    assert (dispatch[0], dispatch[2], dispatch[3]) == (f"dispatch {TOPIC.full}", 1_000_005_000_000, 1_000_025_000_000)
    assert store[1] == dispatch[1] == parse_traceparent(PARENT)
    assert store[4]["messaging.message.id"] == dispatch[4]["messaging.message.id"] == "7:41"


def test_a_run_without_traced_entries_and_another_namespace_keep_their_own_sink() -> None:
    tracing, spans, _ = made()
    inner = Inner()
    assert tracing.sink(TOPIC, entries(None, UNSAMPLED), inner) is inner
    assert tracing.sink(OTHER, entries(PARENT), inner) is inner
    tracing.delivered(OTHER, "s", 1, [0], entries(PARENT))
    assert spans.found == []


def test_an_entry_that_is_not_stored_has_a_span_with_the_error() -> None:
    tracing, spans, _ = made()
    inner = Inner()
    sink = tracing.sink(TOPIC, entries(PARENT, PARENT), inner)
    sink.confirmed(7, 40, 1)
    error = OSError("gone")
    sink.failed(error)
    assert [each[4].get("error.type") for each in spans.found] == [None, "OSError"]
    assert inner.calls[-1] is error


def test_spans_above_the_bound_of_a_second_are_dropped_and_counted() -> None:
    tracing, spans, wall = made(limit=3)
    sink = tracing.sink(TOPIC, entries(*[PARENT] * 10), Inner())
    sink.confirmed(7, 0, 10)
    assert (len(spans.found), tracing.recorded, tracing.dropped) == (3, 3, 7)
    wall.ms += 1000
    tracing.delivered(TOPIC, "s", 7, [0], entries(PARENT))
    assert len(spans.found) == 4


def test_times_of_storage_are_kept_for_a_bounded_number_of_entries() -> None:
    tracing, spans, wall = made()
    [payload] = entries(PARENT)
    for number in range(STORED_MAX + 1):
        tracing.sink(TOPIC, [payload], Inner()).confirmed(7, number, 1)
    wall.ms += 2000
    tracing.delivered(TOPIC, "s", 7, [0, 1], [payload, payload])
    assert [each[3] - each[2] for each in spans.found[-2:]] == [0, 2_000_000_000], "the oldest one is forgotten"


def test_an_invalid_namespace_or_url_is_refused_with_its_remedy() -> None:
    with pytest.raises(ValueError, match="tenant/namespace"):
        TracingOptions(namespaces=("public",))
    with pytest.raises(ValueError, match="http://"):
        TracingOptions(endpoint="localhost:4318")
