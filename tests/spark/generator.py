"""Producers that run during a test, with rows that can be checked, and a consumer that acknowledges what it has read.


A row's value is `<producer> <sequence> <crc32 of the body> <body>`, so a reader knows what is missing, what came twice
and what was damaged without having seen the producers.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

import pulsar

from tests.spark.peer import quiet_client

TICK_S = 0.02
EASE_S = 3.0
"""Seconds in which a producer sends the rows that it may send, fast at first."""
TRICKLE_PER_S = 10.0
"""Rate at which it then continues, so that it never stops, even on a slow machine."""
WINDOW = 1000


class Row(NamedTuple):
    producer: int
    sequence: int


def value_of(producer: int, sequence: int) -> bytes:
    """Return the value of a row: 50 to 300 bytes, the same at every call.

    >>> parse(value_of(3, 17))
    Row(producer=3, sequence=17)
    """
    digest = hashlib.sha256(b"%d %d" % (producer, sequence)).digest()
    body = (digest * 9)[: 32 + digest[0]]
    return b"%d %d %d " % (producer, sequence, crc32(body)) + body


def parse(value: bytes) -> Row:
    """Return the row of a value. Raises AssertionError if it is damaged."""
    producer, sequence, crc, body = value.split(b" ", 3)
    assert crc32(body) == int(crc), f"row {int(sequence)} of producer {int(producer)} is damaged"
    return Row(int(producer), int(sequence))


def key_of(producer: int, sequence: int) -> str:
    return f"{producer}-{sequence % 7}"


@dataclass(slots=True)
class Load:
    """One producer: its rows, its topic and its progress."""

    number: int
    topic: str
    batched: bool
    rows: int
    sent: int = 0
    credit: float = 0.0
    """Rows that it may send and has not; less than one between two ticks."""

    def due(self, share: float) -> int:
        """Return the number of rows to send in this tick, if `share` (0 to 1) of all may be sent now."""
        left = max(0.0, self.rows * share - self.sent)
        self.credit += max(left / EASE_S, TRICKLE_PER_S) * TICK_S
        count = min(int(self.credit), self.rows - self.sent)
        self.credit -= int(self.credit)
        return count


class Generator:
    """Sends all loads from one thread, each from its own producer of the official client.

    `release(share)` says how far it may go quickly; `pause` returns when everything sent has its receipt, and nothing
    is sent until `resume`: a server that is killed meanwhile has every row exactly once, as nobody sends one again.
    """

    def __init__(
        self,
        url: str,
        loads: Sequence[Load],
        *,
        value: Callable[[int, int], bytes] = value_of,
        compression: pulsar.CompressionType = pulsar.CompressionType.NONE,
        batching: pulsar.BatchingType = pulsar.BatchingType.KeyBased,
    ) -> None:
        """`value`: returns the value of a row, as `value_of` does."""
        self.loads = list(loads)
        self._value = value
        self._compression = compression
        self._batching = batching
        self.share = 0.0
        self._client = quiet_client(url)
        self._producers = [self._producer(load) for load in self.loads]
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)

    @property
    def sent(self) -> int:
        return sum(load.sent for load in self.loads)

    @property
    def done(self) -> bool:
        return all(load.sent == load.rows for load in self.loads)

    def start(self, share: float) -> None:
        self.share = share
        self._thread.start()

    def release(self, share: float) -> None:
        self.share = share

    def pause(self) -> None:
        self._lock.acquire()
        for producer in self._producers:
            producer.flush()

    def resume(self) -> None:
        self._lock.release()

    def finish(self) -> None:
        """Send the rest at once, and wait for every receipt."""
        self._ended.set()
        self._thread.join()
        for load, producer in zip(self.loads, self._producers, strict=True):
            self._send(load, producer, load.rows - load.sent)
        for producer in self._producers:
            producer.flush()

    def close(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._lock:
                for load, producer in zip(self.loads, self._producers, strict=True):
                    self._send(load, producer, load.due(self.share))

    def _send(self, load: Load, producer: Any, count: int) -> None:
        for sequence in range(load.sent, load.sent + count):
            key = key_of(load.number, sequence)
            producer.send_async(self._value(load.number, sequence), None, partition_key=key)
        load.sent += count

    def _producer(self, load: Load) -> Any:
        return self._client.create_producer(
            load.topic,
            send_timeout_millis=0,
            max_pending_messages=WINDOW,
            block_if_queue_full=True,
            batching_enabled=load.batched,
            compression_type=self._compression,
            batching_type=self._batching if load.batched else pulsar.BatchingType.Default,
            batching_max_publish_delay_ms=10,
        )


class Drain:
    """Another subscription of the same logs that reads and acknowledges everything; ledgers without a hold are deleted.

    `logs`: names of topics without partitions, and of partitions."""

    def __init__(self, url: str, logs: Sequence[str], name: str = "drain") -> None:
        self.messages = 0
        self._ended = threading.Event()
        self._client = quiet_client(url)
        self._consumers = [
            self._client.subscribe(
                log,
                name,
                initial_position=pulsar.InitialPosition.Earliest,
                batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(1000, 1 << 20, 10),
            )
            for log in logs
        ]
        self._thread = threading.Thread(target=self._run, name="drain", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for consumer in self._consumers:
                try:
                    messages = consumer.batch_receive()
                    if messages:
                        consumer.acknowledge_cumulative(messages[-1])
                        self.messages += len(messages)
                except pulsar.PulsarException:
                    pass  # (the server is away: what was not acknowledged comes again)
