"""One workload against one server, as a process of its own: `python -m bench.load NAME --port P --pids 1,2 ...`.

Prints one JSON object: rate (messages/s), server CPU (us per message), latencies in ms: what applies.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pulsar
import typer

from bench.procs import cpu_s
from bench.raw import flood
from quire.service.programs.command_line import one_of, run_command

Result = dict[str, float]


class Measurement:
    """Arguments of a workload, and the meter around its measured part."""

    def __init__(self, port: int, pids: list[int], seconds: float, tag: str, token: bytes = b"") -> None:
        self.port = port
        self.pids = pids
        self.seconds = seconds
        self.tag = tag
        self.token = token
        """Token of the client's role; empty: it has none."""

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    def topic(self, name: str) -> str:
        return f"persistent://public/default/{name}-{self.tag}"

    def measure(self, work: Callable[[], int]) -> Result:
        """Measure rate and server CPU while `work` runs, which returns how many messages it handled."""
        cpu, begin = cpu_s(self.pids), time.perf_counter()
        count = work()
        taken = time.perf_counter() - begin
        return {"rate": count / taken, "cpu_us": (cpu_s(self.pids) - cpu) / count * 1e6}

    def client(self) -> pulsar.Client:
        authentication = pulsar.AuthenticationToken(self.token.decode()) if self.token else None
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        return pulsar.Client(self.url, logger=logger, authentication=authentication)


def percentiles(seconds: list[float]) -> Result:
    ordered = sorted(seconds)
    return {"p50_ms": ordered[len(ordered) // 2] * 1e3, "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3}


def raw(size: int, *, tls: bool = False) -> Callable[[Measurement], Result]:
    def work(run: Measurement) -> Result:
        topic = run.topic(f"raw{size}")

        def fill(seconds: float) -> int:
            return flood("127.0.0.1", run.port, topic, size, 1000, seconds, tls=tls, token=run.token)[0]

        fill(min(1.0, run.seconds / 3))
        return run.measure(lambda: fill(run.seconds))

    return work


def produce(client: pulsar.Client, topic: str, size: int, *, batched: bool, count: int = 0, seconds: float = 0) -> int:
    """Send `count` messages, or for `seconds`, and wait for all receipts; return how many."""
    options: dict[str, Any] = {"batching_enabled": batched, "block_if_queue_full": True}
    producer = client.create_producer(topic, **options)
    payload = b"x" * size
    failed: list[object] = []

    def sent(result: object, _: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    done = 0
    end = time.perf_counter() + seconds
    while (done < count) if count else (done % 256 or time.perf_counter() < end):
        producer.send_async(payload, sent)
        done += 1
    producer.flush()
    producer.close()
    if failed:
        raise RuntimeError(f"{len(failed)} sends failed, first: {failed[0]}")
    return done


def official(size: int, *, batched: bool, clients: int = 1) -> Callable[[Measurement], Result]:
    def work(run: Measurement) -> Result:
        topic = run.topic(f"client{size}{batched}{clients}")
        if clients == 1:
            client = run.client()
            produce(client, topic, size, batched=batched, seconds=min(0.5, run.seconds / 3))
            result = run.measure(lambda: produce(client, topic, size, batched=batched, seconds=run.seconds))
            client.close()
            return result
        return run.measure(lambda: several(run, topic, size, batched, clients))

    return work


def several(run: Measurement, topic: str, size: int, batched: bool, clients: int) -> int:
    """Run the same from several processes at once, because one Python process would be the limit."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    with context.Pool(clients) as pool:
        jobs = [(run.port, f"{topic}-{number}", size, batched, run.seconds) for number in range(clients)]
        return sum(pool.starmap(one_of_several, jobs))


def one_of_several(port: int, topic: str, size: int, batched: bool, seconds: float) -> int:
    client = Measurement(port, [], seconds, "").client()
    try:
        return produce(client, topic, size, batched=batched, seconds=seconds)
    finally:
        client.close()


def synchronous(run: Measurement) -> Result:
    client = run.client()
    producer = client.create_producer(run.topic("sync"), batching_enabled=False)
    payload = b"x" * 1024
    for _ in range(100):
        producer.send(payload)
    taken = []
    end = time.perf_counter() + run.seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        producer.send(payload)
        taken.append(time.perf_counter() - begin)
    client.close()
    return {"rate": len(taken) / sum(taken), **percentiles(taken)}


def end_to_end(run: Measurement) -> Result:
    """Publish 500 messages/s, and measure the time each takes to reach a listening consumer."""
    client = run.client()
    topic = run.topic("e2e")
    taken: list[float] = []

    def receive(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        taken.append(time.perf_counter() - float(message.data()[:32]))
        consumer.acknowledge(message)

    consumer = client.subscribe(
        topic,
        "s",
        message_listener=receive,
    )
    producer = client.create_producer(topic, batching_enabled=False)
    begin = time.perf_counter()
    number = 0
    while time.perf_counter() - begin < run.seconds + 0.5:
        due = begin + number / 500
        delay = due - time.perf_counter()
        if delay > 0:
            time.sleep(delay)
        producer.send_async(f"{time.perf_counter():.9f}".ljust(1024).encode(), lambda *_: None)
        number += 1
    producer.flush()
    deadline = time.perf_counter() + 10
    while len(taken) < number and time.perf_counter() < deadline:
        time.sleep(0.01)
    consumer.close()
    client.close()
    if len(taken) < number:
        raise RuntimeError(f"{number - len(taken)} messages did not arrive")
    return percentiles(taken[250:])


def drain(count: int, *, batched: bool) -> Callable[[Measurement], Result]:
    def work(run: Measurement) -> Result:
        client = run.client()
        topic = run.topic(f"drain{batched}")
        client.subscribe(topic, "s").close()
        produce(client, topic, 1024, batched=batched, count=count)
        client.close()
        client = run.client()
        time.sleep(1.5)  # recently published messages leave the caches, as those of a backlog have

        def consume() -> int:
            left = count
            done = threading.Event()

            def arrived(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
                nonlocal left
                consumer.acknowledge(message)
                left -= 1
                if left == 0:
                    done.set()

            client.subscribe(topic, "s", message_listener=arrived, receiver_queue_size=5000)
            if not done.wait(120):
                raise RuntimeError(f"{left} of {count} messages did not arrive")
            return count

        result = run.measure(consume)
        client.close()
        return result

    return work


def new_topics(run: Measurement) -> Result:
    client = run.client()
    client.create_producer(run.topic("new-first"))

    def create() -> int:
        number = 0
        end = time.perf_counter() + run.seconds
        while time.perf_counter() < end:
            client.create_producer(run.topic(f"new{number}"))
            number += 1
        return number

    result = run.measure(create)
    client.close()
    return result


def warm(run: Measurement) -> Result:
    """Run mixed load until the server is at full speed."""
    client = run.client()
    end = time.perf_counter() + run.seconds
    number = 0
    while time.perf_counter() < end:
        topic = run.topic(f"warm{number % 4}")
        flood("127.0.0.1", run.port, topic, 1024 if number % 2 else 100, 1000, 1.5, token=run.token)
        client.subscribe(run.topic("warm-read"), "s").close()
        produce(client, run.topic("warm-read"), 1024, batched=bool(number % 2), count=3000)
        consumer = client.subscribe(run.topic("warm-read"), "s")
        for _ in range(3000):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.close()
        number += 1
    client.close()
    return {}


WORKLOADS: dict[str, Callable[[Measurement], Result]] = {
    "raw_1k": raw(1024),
    "raw_1k_tls": raw(1024, tls=True),
    "raw_100_tls": raw(100, tls=True),
    "raw_100": raw(100),
    "client_1k": official(1024, batched=False),
    "client_1k_two": official(1024, batched=False, clients=2),
    "client_1k_batched": official(1024, batched=True),
    "client_100_batched": official(100, batched=True),
    "sync": synchronous,
    "end_to_end": end_to_end,
    "drain_batched": drain(100_000, batched=True),
    "drain_unbatched": drain(60_000, batched=False),
    "new_topics": new_topics,
    "warm": warm,
}


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(load, name="python -m bench.load", text=__doc__)


def load(
    workload: Annotated[str, typer.Argument(help=f"One of {', '.join(sorted(WORKLOADS))}.")],
    port: Annotated[int, typer.Option()],
    pids_text: Annotated[str, typer.Option("--pids")] = "",
    seconds: Annotated[float, typer.Option()] = 5,
    tag: Annotated[str | None, typer.Option(show_default="the time")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token of the client's role.")] = None,
) -> int:
    one_of("WORKLOAD", workload, sorted(WORKLOADS))
    pids = [int(pid) for pid in pids_text.split(",") if pid]
    token = b"" if token_file is None else token_file.read_bytes().strip()
    print(json.dumps(WORKLOADS[workload](Measurement(port, pids, seconds, tag or str(time.time_ns()), token))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
