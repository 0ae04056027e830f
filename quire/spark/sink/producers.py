"""The producers of one task: opened when the first row needs them, a bounded number at a time, bounded bytes unanswered.

Runs on the runtime's loop; a writer calls it from the task's thread, one call per piece of a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quire.client.client import Client
from quire.client.errors import ClientError
from quire.client.packing import Packed
from quire.client.producer import Producer
from quire.spark.errors import SinkError

log = logging.getLogger(__name__)

OPEN_MAX = 64
"""Producers that a task has open at once; the one that was used longest ago makes room."""

UNANSWERED_MAX = 64 << 20
"""Bytes sent since all producers were last waited for, at which they are waited for again."""

PENDING_MAX = 16 << 20
"""Bytes that one producer has unanswered."""


class Producers:
    """Producers by target (a partition, or a topic without partitions), all of one name."""

    def __init__(
        self, client: Client, name: str, *, open_max: int = OPEN_MAX, unanswered_max: int = UNANSWERED_MAX
    ) -> None:
        self._client = client
        self._name = name
        self._open_max = open_max
        self._unanswered_max = unanswered_max
        self._open: dict[str, Producer] = {}
        """The one used longest ago first."""
        self._sent = 0
        """Bytes given to producers since `flush`."""

    async def partitions(self, topics: Sequence[str]) -> list[int]:
        """How many partitions each of `topics` has; 0: it is not partitioned. A topic that is missing is made, as the
        broker is configured to (that is what an official producer does, too). SinkError."""
        counts = []
        for topic in topics:
            try:
                counts.append(await self._client.partitions(topic, create=True))
            except ClientError as error:
                raise SinkError(f"topic {topic} cannot be written to: {error}") from error
        return counts

    async def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None:
        """Send each run to its target, in this order. Returns when all are queued, not when they are answered. SinkError:
        of these, or of ones sent before."""
        for target, packed in runs:
            try:
                await (await self._producer(target)).send(packed)
            except ClientError as error:
                raise _refused(target, error) from error
            self._sent += sum(each.size for each in packed)
            if self._sent >= self._unanswered_max:
                await self.flush()

    async def flush(self) -> None:
        """Wait until everything sent is durable. SinkError."""
        for target, producer in self._open.items():
            await _flush(target, producer)
        self._sent = 0

    async def close(self) -> None:
        """Close all. What was not flushed may be lost, or not."""
        while self._open:
            target = next(iter(self._open))
            await _close(target, self._open.pop(target))

    async def _producer(self, target: str) -> Producer:
        producer = self._open.pop(target, None)
        if producer is None:
            while len(self._open) >= self._open_max:
                oldest = next(iter(self._open))
                leaving = self._open.pop(oldest)
                try:
                    await _flush(oldest, leaving)
                finally:
                    await _close(oldest, leaving)
            producer = await self._client.producer(target, name=self._name, pending_bytes_max=PENDING_MAX)
        self._open[target] = producer
        return producer


async def _flush(target: str, producer: Producer) -> None:
    try:
        await producer.flush()
    except ClientError as error:
        raise _refused(target, error) from error


async def _close(target: str, producer: Producer) -> None:
    try:
        await producer.close()
    except ClientError as error:
        # (whatever it had was flushed, or has failed already: the connection's end closes it, too)
        log.info("a producer of %s was not closed cleanly: %s", target, error)


def _refused(target: str, error: ClientError) -> SinkError:
    return SinkError(f"rows could not be written to {target}: {error}")
