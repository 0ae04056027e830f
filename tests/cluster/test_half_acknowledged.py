"""100,000 batches of the official client, each acknowledged in part, on a standalone server: what is left is delivered
exactly, also after SIGKILL, and neither the event loop nor the memory shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
import pytest

from tests.support.server import StandaloneProcess
from tests.support.stepping import COMMAND, long_steps
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.full]

TOPIC = "persistent://public/default/halves"
BATCHES = 100_000
RECEIVE_MS = 60_000
STEP_MAX_MS = 40.0
"""CPU time of the longest step that passes: a step that went through all batches would take some hundred."""
MEMORY_MAX_MB = 100.0
"""Memory that 100,000 half-acknowledged batches and their way to the client may take."""
NO_LIMITS: dict[str, object] = {"maxUnackedMessagesPerConsumer": 0, "maxUnackedMessagesPerSubscription": 0}


class Phases:
    """Steps and memory of the server in each phase of the test."""

    def __init__(self, server: StandaloneProcess) -> None:
        self._server = server
        self.memory_mb = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Check the longest step of the phase."""
        seen = len(self._server.log())
        yield
        steps = long_steps(self._server.log()[seen:])
        self.memory_mb = max(self.memory_mb, self._server.rss_mb())
        longest = f"{steps[0].ms} ms ({steps[0].task})" if steps else "short"
        print(f"{name}: longest step {longest}, memory {self._server.rss_mb():.0f} MB")
        assert not steps or steps[0].ms < STEP_MAX_MS, f"{name}: {steps[:3]}"


def subscribe(client: pulsar.Client) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True, receiver_queue_size=5000
    )


def publish(client: pulsar.Client) -> None:
    """Publish batches of two numbered messages."""
    producer = client.create_producer(
        TOPIC,
        batching_enabled=True,
        batching_max_messages=2,
        batching_max_publish_delay_ms=10_000,
        block_if_queue_full=True,
        max_pending_messages=10_000,
    )
    results: Counter[pulsar.Result] = Counter()

    def done(result: pulsar.Result, _: pulsar.MessageId) -> None:
        results[result] += 1

    for number in range(2 * BATCHES):
        producer.send_async(b"%d" % number, done)
    producer.flush()
    assert results == {pulsar.Result.Ok: 2 * BATCHES}


def test_100_000_half_acknowledged_batches_hold_no_step_and_little_memory(tmp_path: Path) -> None:
    server = StandaloneProcess(tmp_path, NO_LIMITS)
    server.command = [*COMMAND, "standalone"]
    try:
        server.start()
        idle_mb = server.rss_mb()
        phases = Phases(server)
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = subscribe(client)
        with phases.phase("publish"):
            publish(client)
        with phases.phase("acknowledge the first of each batch"):
            for number in range(2 * BATCHES):
                message = consumer.receive(RECEIVE_MS)
                assert int(message.data()) == number
                if message.message_id().batch_index() == 0:
                    consumer.acknowledge(message)
            wait_until(lambda: server.metric("pulsar_subscription_unacked_messages") == BATCHES, "all are half", 60)
        with phases.phase("close"):
            client.close()
        server.kill()
        server.start()
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with phases.phase("open again"):
            consumer = subscribe(client)
        with phases.phase("take the others"):
            messages = [consumer.receive(RECEIVE_MS) for _ in range(BATCHES)]
            found = [int(message.data()) for message in messages]
            assert found == list(range(1, 2 * BATCHES, 2)), "exactly the messages that were not acknowledged, in order"
        with phases.phase("acknowledge the others"):
            for message in messages:
                consumer.acknowledge(message)
            wait_until(lambda: server.metric("pulsar_subscription_back_log") == 0, "all is acknowledged", 60)
        client.close()
        assert phases.memory_mb - idle_mb < MEMORY_MAX_MB
    finally:
        server.kill()
