"""Official clients of a chaos run, as processes: `python -m tools.chaos.clients produce|consume ...`.

Each writes its history to a file. On standard output: `ready`, then a line of figures twice a second. A line on
standard input ends it: the producers then wait for all receipts, the consumers close.

Even topics are published in batches by key, odd ones message by message. Subscriptions are Failover, Key_Shared and
Exclusive by turns, the first two with two consumers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import pulsar
import typer

from bench.waiting import poll_until
from quire.service.programs.command_line import run_command
from tools.chaos.history import Record, What, now_us, parse_payload, payload_of, write

SUBSCRIPTION = "chaos"
KEYS = 8
PENDING_MAX = 20_000
"""Messages of a topic without a receipt at which none is sent until there are fewer."""
TICK_S = 0.01
REPORT_S = 0.5
FLUSH_S = 120.0
SUBSCRIBE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Options of both kinds of clients."""

    url: str
    log: Path
    topics: int
    rate: float
    trust_file: Path | None
    token_file: Path | None


def topic_name(number: int) -> str:
    """Return a topic's name. The checker reads the numbers at its end in the client's log."""
    return f"persistent://public/default/chaos-{number}"


def client_of(given: Given) -> Any:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(given.log))
    more: dict[str, Any] = {}
    if given.trust_file is not None:
        more |= {"tls_trust_certs_file_path": str(given.trust_file), "tls_validate_hostname": True}
    if given.token_file is not None:
        more["authentication"] = pulsar.AuthenticationToken(given.token_file.read_text)
    return pulsar.Client(
        given.url, logger=logger, operation_timeout_seconds=SUBSCRIBE_S, connection_timeout_ms=3000, **more
    )


class Producing:
    """Producers, one per topic, with a constant rate in all."""

    def __init__(self, given: Given, history: BinaryIO) -> None:
        self._rate = given.rate
        self._history = history
        self._client = client_of(given)
        self._producers = [self._producer(number) for number in range(given.topics)]
        self._next = [0] * given.topics
        self._open = [0] * given.topics
        self.sent = 0
        self.answered = 0
        self.failed = 0

    def _producer(self, number: int) -> Any:
        batched = number % 2 == 0
        return self._client.create_producer(
            topic_name(number),
            producer_name=f"chaos-{number}",
            send_timeout_millis=0,  # a message fails only at the end of the run
            max_pending_messages=PENDING_MAX,
            max_pending_messages_across_partitions=PENDING_MAX * 100,
            batching_enabled=batched,
            batching_type=pulsar.BatchingType.KeyBased if batched else pulsar.BatchingType.Default,
            batching_max_publish_delay_ms=5,
        )

    def run(self, stop: threading.Event) -> None:
        last = time.monotonic()
        due = 0.0
        turn = 0
        while not stop.is_set():
            now = time.monotonic()
            due += (now - last) * self._rate
            last = now
            # Messages that could not be sent are not made up for, so that the rate stays constant.
            due = min(due, self._rate)
            while due >= 1:
                due -= 1
                turn = (turn + 1) % len(self._producers)
                if self._open[turn] < PENDING_MAX - 1:
                    self._send(turn)
            stop.wait(TICK_S)
        poll_until(self._is_settled, FLUSH_S)

    def _is_settled(self) -> bool:
        """Return whether the outcome of every message is known."""
        return self.answered + self.failed == self.sent

    def _send(self, topic: int) -> None:
        sequence = self._next[topic]
        self._next[topic] += 1
        self._open[topic] += 1
        key = sequence % KEYS
        self.sent += 1
        write(self._history, Record(What.SENT, topic, 0, sequence, now_us(), key=key))

        def done(result: Any, found: Any) -> None:
            at_us = now_us()
            self._open[topic] -= 1
            if result == pulsar.Result.Ok:
                where = (found.ledger_id(), found.entry_id(), found.batch_index())
                write(self._history, Record(What.RECEIPT, topic, 0, sequence, at_us, *where))
                self.answered += 1
            else:
                write(self._history, Record(What.FAILED, topic, 0, sequence, at_us))
                self.failed += 1

        self._producers[topic].send_async(payload_of(topic, sequence, key), done, partition_key=str(key))

    def figures(self) -> str:
        return f"sent={self.sent} answered={self.answered}"

    def close(self) -> None:
        if self._is_settled():
            self._client.close()


class Consuming:
    """Consumers of the subscriptions, all on one listening thread, so that deliveries have one order."""

    def __init__(self, given: Given, history: BinaryIO) -> None:
        self._history = history
        self._client = client_of(given)
        self._seen: set[int] = set()
        self.delivered = 0
        kinds = (pulsar.ConsumerType.Failover, pulsar.ConsumerType.KeyShared, pulsar.ConsumerType.Exclusive)
        for number in range(given.topics):
            kind = kinds[number % len(kinds)]
            for consumer in range(1 if kind == pulsar.ConsumerType.Exclusive else 2):
                self._subscribe(number, consumer, kind)

    def _subscribe(self, topic: int, number: int, kind: Any) -> None:
        def arrived(consumer: Any, message: Any) -> None:
            self._arrived(consumer, message, topic, number)

        self._client.subscribe(
            topic_name(topic),
            SUBSCRIPTION,
            consumer_type=kind,
            consumer_name=f"chaos-{topic}-{number}",
            initial_position=pulsar.InitialPosition.Earliest,
            message_listener=arrived,
        )

    def _arrived(self, consumer: Any, message: Any, topic: int, number: int) -> None:
        at_us = now_us()
        found = parse_payload(message.data())
        place = message.message_id()
        where = (place.ledger_id(), place.entry_id(), place.batch_index())
        if found is None or found[0] != topic:
            write(self._history, Record(What.STRANGE, topic, number, 0, at_us, *where))
            return
        _, sequence, key = found
        write(self._history, Record(What.DELIVERED, topic, number, sequence, at_us, *where, key=key))
        self._seen.add(topic << 32 | sequence)
        self.delivered += 1
        try:
            consumer.acknowledge(message)
            write(self._history, Record(What.ACKNOWLEDGED, topic, number, sequence, now_us(), *where))
        except pulsar.PulsarException:
            # The consumer is not connected at this moment: the message is not acknowledged, and comes again.
            pass

    def run(self, stop: threading.Event) -> None:
        stop.wait()

    def figures(self) -> str:
        return f"delivered={self.delivered} different={len(self._seen)}"

    def close(self) -> None:
        self._client.close()


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(clients, name="python -m tools.chaos.clients", text=__doc__)


def clients(
    what: Literal["produce", "consume"],
    url: Annotated[str, typer.Option(help="URL of a broker.")],
    out: Annotated[Path, typer.Option(help="File of the history.")],
    log: Annotated[Path, typer.Option(help="File of the client's log.")],
    topics: Annotated[int, typer.Option(help="Number of topics.")],
    rate: Annotated[float, typer.Option(help="Messages per second over all topics.")],
    trust_file: Annotated[Path | None, typer.Option(help="Authority of the brokers' certificates.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token of both.")] = None,
) -> int:
    os.environ["TZ"] = "UTC"  # of the times in the client's log
    time.tzset()
    given = Given(url=url, log=log, topics=topics, rate=rate, trust_file=trust_file, token_file=token_file)
    with open(out, "wb") as history:
        found = Producing(given, history) if what == "produce" else Consuming(given, history)
        serve(found)
    print(f"end {found.figures()}", flush=True)
    os._exit(0)  # a client that cannot be closed must not keep the run from ending


def serve(clients: Producing | Consuming) -> None:
    """Run the clients until a line comes on standard input, and print their figures meanwhile."""
    stop, over = threading.Event(), threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    def report() -> None:
        while not over.wait(REPORT_S):
            print(clients.figures(), flush=True)

    print("ready", flush=True)
    threading.Thread(target=listen, daemon=True).start()
    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    clients.run(stop)
    over.set()
    reporter.join()
    clients.close()


if __name__ == "__main__":
    sys.exit(main())
