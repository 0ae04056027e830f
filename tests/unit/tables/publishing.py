"""Messages of the tests, by the official client."""

from __future__ import annotations

from typing import Any

import pulsar


def publish(client: pulsar.Client, topic: str, values: list[bytes], **more: Any) -> None:
    """Publish and wait for the receipts; one entry per message unless batching is asked for."""
    producer = client.create_producer(topic, block_if_queue_full=True, **{"batching_enabled": False, **more})
    for value in values:
        producer.send_async(value, None)
    producer.flush()
    producer.close()
