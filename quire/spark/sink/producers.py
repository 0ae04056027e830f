"""Producers of one task: opened on first use, with a bounded number open and bounded bytes without receipt.

Runs on the runtime's loop; a writer calls it from the task's thread, one call per piece of a batch.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import cast

from quire.client.chunked.cutting import chunked
from quire.client.client import Client
from quire.client.deduplicated.sequenced import Numbered, SequencedProducer
from quire.client.errors import ClientError
from quire.client.packing import Packed
from quire.client.producer import Producer
from quire.spark.errors import SinkError
from quire.wire.pulsar import PulsarApi_pb2 as pb

log = logging.getLogger(__name__)

OPEN_MAX = 64
"""Maximum producers open per task; the least recently used one is closed first."""

UNANSWERED_MAX = 64 << 20
"""Bytes sent since the last flush at which all producers are flushed."""

CHUNKED_MAX = 256 << 20
"""Maximum bytes of a message in pieces; sources read no larger ones."""

PENDING_MAX = 16 << 20
"""Maximum bytes without receipt of one producer."""


class Producers:
    """Producers by target (a partition, or a topic without partitions), all with the same name."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        sequenced: bool = False,
        chunking: bool = False,
        schema: pb.Schema | None = None,
        open_max: int = OPEN_MAX,
        unanswered_max: int = UNANSWERED_MAX,
    ) -> None:
        """`sequenced`: what is sent has sequence ids (`Numbered`), by which the brokers drop duplicates.
        `chunking`: messages that are larger than the broker accepts are sent in pieces.
        `schema`: schema of all messages, which is registered with the topics."""
        self._sequenced = sequenced
        self._chunking = chunking
        self._schema = schema
        self._client = client
        self._name = name
        self._open_max = open_max
        self._unanswered_max = unanswered_max
        self._open: dict[str, Producer] = {}
        """In order of their last use, oldest first."""
        self._sent = 0
        """Bytes sent since `flush`."""

    async def partitions(self, topics: Sequence[str]) -> list[int]:
        """Return the number of partitions of each of `topics`; 0: it is not partitioned.

        A missing topic is created, as the broker's configuration has it (an official producer does the same). Raises
        SinkError."""
        counts = []
        for topic in topics:
            try:
                counts.append(await self._client.partitions(topic, create=True))
            except ClientError as error:
                raise SinkError(f"topic {topic} cannot be written to: {error}") from error
        return counts

    async def last_id(self, target: str) -> int:
        """Return the highest sequence id that the broker had under this name when the producer was opened; -1: none.

        Raises SinkError."""
        try:
            return (await self._producer(target)).last_sequence_id
        except ClientError as error:
            raise _refused(target, error) from error

    async def schema_version(self, target: str) -> bytes:
        """Return the version that the broker gave to the schema; empty: there is none. Raises SinkError."""
        try:
            return (await self._producer(target)).schema_version
        except ClientError as error:
            raise _refused(target, error) from error

    async def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None:
        """Send each run to its target, in this order. Returns when all are queued, not when they are confirmed.

        Raises SinkError: of these, or of ones sent before."""
        for target, packed in runs:
            try:
                producer = await self._producer(target)
                if isinstance(producer, SequencedProducer):
                    await producer.send_numbered(cast(Sequence[Numbered], packed))
                else:
                    await producer.send(self._cut(packed, producer, target))
            except ClientError as error:
                raise _refused(target, error) from error
            self._sent += sum(each.size for each in packed)
            if self._sent >= self._unanswered_max:
                await self.flush()

    def _cut(self, packed: Sequence[Packed], producer: Producer, target: str) -> Sequence[Packed]:
        """Return the entries to send: those that are too large are cut, if that is asked for. Raises SinkError."""
        if not self._chunking:
            return packed
        size_max = producer.message_size_max
        for each in packed:
            if len(each.payload) > CHUNKED_MAX:
                raise SinkError(
                    f"rows could not be written to {target}: a message has {len(each.payload)} bytes, and sources read"
                    f" only up to {CHUNKED_MAX}"
                )
        try:
            return [piece for each in packed for piece in chunked(each, size_max, uuid.uuid4().hex)]
        except ValueError as error:
            raise SinkError(f"rows could not be written to {target}: {error}") from error

    async def flush(self) -> None:
        """Wait until everything sent is durable. Raises SinkError."""
        for target, producer in self._open.items():
            await _flush(target, producer)
        self._sent = 0

    async def close(self) -> None:
        """Close all. Messages that were not flushed may be lost, or stored."""
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
            opened = self._client.sequenced_producer if self._sequenced else self._client.producer
            producer = await opened(target, name=self._name, pending_bytes_max=PENDING_MAX, schema=self._schema)
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
        # its messages were flushed, or have failed already; the end of the connection closes it too
        log.info("producer of %s not closed cleanly: %s", target, error)


def _refused(target: str, error: ClientError) -> SinkError:
    return SinkError(f"rows could not be written to {target}: {error}")
