"""Many topics on one standalone server, of which a few are active: rate of creation, memory per topic, time to stop,
time from a restart to the first receipt, and time until all are served again.

    scripts/bench topics [--topics 20000] [--active 1000] [--folder F] [--pulsar-topics 5000]

Each topic is created by a producer. Then each sends one message, and each fourth topic gets a subscription that
acknowledges it. After a stop, the producers of the active topics connect to the restarted server as soon as it listens,
and send; then those of all others come, and all leave. The memory of an idle topic is read when no client is connected:

    created    with its open ledger, some time after the last message
    unloaded   of a restarted server, above that of one without topics: its nodes in the metadata
    loaded     after the restart, above the unloaded ones

Of Apache Pulsar the memory is that of the living objects of its heap. Its clients look topics up first: it refuses
producers of topics whose bundle it has not taken.

Inactive topics are not deleted. Nothing here is a test: the figures are a machine's, their ratios are the program's.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.procs import cpu_s, pss_mb, scheduled_s, tree
from bench.raw import PONG, RawClient, frame, send_frame
from bench.servers import PULSAR_VERSION, Server, pulsar, pulsar_jars, quire
from bench.waiting import poll_until
from quire.service.programs.command_line import run_command
from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
GROUP = 200
"""Requests under way at once."""
KEYS = {"brokerDeleteInactiveTopicsEnabled": "false"}
STOP_S = 600
IDLE_S = 8.0
"""Time without clients before memory is read: idle writers give back theirs (`managed_ledger.factory.REST_S`)."""
SETTLE_S = 10.0
"""Maximum time until memory is read then, so that memory released late counts."""
SETTLED_MB = 0.5
"""Decrease below which memory has settled between two looks."""
LOOK_S = 0.5
LOOKUPS = 64
READY_S = 60.0
"""Time for a server that has just started to find a topic."""
AGAIN_S = 600.0
"""Time from a start in which a producer that is refused is asked for again."""
FAILED = pb.CommandLookupTopicResponse.Failed


def topic_of(number: int) -> str:
    return f"persistent://public/default/many-{number}"


@dataclass(frozen=True, slots=True)
class System:
    """A server under test."""

    name: str
    start: Callable[[], AbstractContextManager[Server]]
    topics: int
    used_mb: Callable[[Server], float]
    """Returns the memory that is in use."""
    looks_up: bool
    """True if a topic must be looked up before it has a producer."""


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(topics, name="scripts/bench topics", text=__doc__)


def topics(
    topics: Annotated[int, typer.Option()] = 20_000,
    active: Annotated[int, typer.Option(help="Topics whose producers come first after the restart.")] = 1000,
    data_folder: Annotated[
        Path | None, typer.Option("--folder", help="Keeps the server's data and log; a temporary folder otherwise.")
    ] = None,
    pulsar_topics: Annotated[
        int, typer.Option(help="Then the same of Apache Pulsar standalone with so many (0: not).")
    ] = 0,
) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = data_folder or Path(temporary)
        systems = [System("quire", lambda: quire(folder, KEYS), topics, pss_of, looks_up=False)]
        lib = pulsar_jars() if pulsar_topics else None
        if lib is not None:
            peer = folder / "pulsar"
            start = partial(pulsar, peer, lib, KEYS)
            systems.append(System(f"pulsar {PULSAR_VERSION}", start, pulsar_topics, live_mb, looks_up=True))
        elif pulsar_topics:
            print("Apache Pulsar needs Maven and Java: it is left out", flush=True)
        found = {each.name: measured(each, active) for each in systems}
    print_table(found)
    return 0


def measured(system: System, active: int) -> dict[str, str]:
    """Measure one system; return its figures by name."""
    topics, active, figures = system.topics, min(active, system.topics), dict[str, str]()
    print(f"{system.name}, {topics} topics", flush=True)
    with system.start() as server:
        warm_up(server, system)
        empty_mb = memory(server, system)
        took = serve_all(server, range(topics), subscribers=False, publish=False)
        figures["topics created per second"] = report("created", topics, took, server)
        took = serve_all(server, range(topics), publish=True)
        figures["first messages per second"] = report("published to", topics, took, server)
        figures["KB per created topic"] = each_topic("created", topics, empty_mb, memory(server, system))
        figures["stop, s"] = stop(server, "with its topics loaded")
    with system.start() as server:
        first, last, cpu = restart_to_receipts(server, range(active), system)
        print(
            f"restart to the first receipt: {first:.2f} s (CPU {cpu:.2f} s); to those of {active} topics: {last:.2f} s",
            flush=True,
        )
        figures["restart to the first receipt, s"] = f"{first:.2f} (CPU {cpu:.2f})"
        figures["to those of the active topics, s"] = f"{last:.2f}"
        unloaded_mb = memory(server, system)
        look_up(server, system)
        took = serve_all(server, range(topics), publish=False)
        figures["topics served again per second"] = report("served again", topics, took, server)
        loaded_mb = memory(server, system)
        figures["KB per loaded topic"] = each_topic("loaded", topics - active, unloaded_mb, loaded_mb)
        figures["stop after that, s"] = stop(server, "with its topics loaded again")
    with system.start() as server:
        warm_up(server, system)
        figures["KB per unloaded topic"] = each_topic("unloaded", topics, empty_mb, memory(server, system))
        stop(server, "without loaded topics")
    return figures


def print_table(found: dict[str, dict[str, str]]) -> None:
    names = list(found)
    print(f"\n{'':34}" + "".join(f"{name:>24}" for name in names))
    for figure in found[names[0]]:
        print(f"{figure:34}" + "".join(f"{found[name][figure]:>24}" for name in names))


def pss_of(server: Server) -> float:
    return pss_mb(tree(server.process.pid))


def live_mb(server: Server) -> float:
    """Return the memory of the living objects of a JVM, whose heap has its full size from the start. What it has beside
    the heap does not count."""
    pid = str(server.process.pid)
    text = subprocess.run(["jcmd", pid, "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    return int(text.split()[-1]) / (1 << 20)


def look_up(server: Server, system: System) -> None:
    """Look topics up, as many as reach all bundles of the namespace: the broker then takes producers of all topics."""
    if not system.looks_up:
        return
    client = RawClient("127.0.0.1", server.port)

    def is_found(number: int) -> bool:
        return client.request(lookup(number), C.LOOKUP_RESPONSE).lookupTopicResponse.response != FAILED

    for number in range(LOOKUPS):
        if not poll_until(partial(is_found, number), READY_S):
            raise TimeoutError(f"{system.name}: topic {number} was not found within {READY_S:g} s")
    client.socket.close()


def warm_up(server: Server, system: System) -> None:
    """Serve a topic, so that the memory for what the first one needs is not counted as that of the others."""
    look_up(server, system)
    serve_all(server, range(-1, 0), publish=True)


def each_topic(what: str, topics: int, before_mb: float, after_mb: float) -> str:
    each_kb = 1024 * (after_mb - before_mb) / max(1, topics)
    print(f"memory: {before_mb:.0f} -> {after_mb:.0f} MB, {each_kb:.2f} KB per {what} topic", flush=True)
    return f"{each_kb:.2f}"


def restart_to_receipts(server: Server, numbers: range, system: System) -> tuple[float, float, float]:
    """Publish to these topics at once; return the seconds from the start of the server to the first receipt and to the
    last one, and the CPU that the server has used by the first one."""
    look_up(server, system)
    client = RawClient("127.0.0.1", server.port)
    client.socket.sendall(b"".join([producer(number) for number in numbers]))
    receipts = 0
    first = last = cpu = 0.0
    while receipts < len(numbers):
        answer, _ = client.receive()
        if answer.type == C.PING:
            client.socket.sendall(PONG)
        elif answer.type == C.PRODUCER_SUCCESS:
            client.socket.sendall(send_frame(answer.producer_success.request_id, 1, b"x" * 100))
        elif answer.type == C.ERROR and time.perf_counter() - server.started < AGAIN_S:
            # Pulsar answers so if a topic is not loaded in a minute.
            client.socket.sendall(producer(answer.error.request_id - 1))
        elif answer.type == C.SEND_RECEIPT:
            receipts += 1
            last = time.perf_counter() - server.started
            if not first:
                first, cpu = last, scheduled_s(server.pids)
        else:
            raise RuntimeError(f"unexpected answer: {answer}")
    client.socket.close()
    return first, last, cpu


def memory(server: Server, system: System) -> float:
    """Return the memory in MB, when it has settled."""
    time.sleep(IDLE_S)
    seen = [system.used_mb(server)]

    def has_settled() -> bool:
        seen.append(system.used_mb(server))
        return len(seen) > 2 and seen[-2] - seen[-1] < SETTLED_MB

    poll_until(has_settled, SETTLE_S, poll_s=LOOK_S)
    return seen[-1]


def report(what: str, topics: int, took_s: float, server: Server) -> str:
    cpu = cpu_s(tree(server.process.pid))
    print(
        f"{topics} topics {what}: {took_s:.1f} s, {topics / took_s:.0f}/s, {1000 * took_s / topics:.2f} ms each; "
        f"CPU so far {cpu:.1f} s",
        flush=True,
    )
    return f"{topics / took_s:.0f}"


def stop(server: Server, what: str) -> str:
    before = cpu_s(tree(server.process.pid))
    begun = time.perf_counter()
    server.process.send_signal(signal.SIGTERM)
    while server.process.poll() is None and time.perf_counter() - begun < STOP_S:
        cpu = cpu_s(tree(server.process.pid)) or before
        time.sleep(0.02)
    took = time.perf_counter() - begun
    print(f"stop {what}: {took:.1f} s, CPU {cpu - before:.1f} s, exit code {server.process.returncode}", flush=True)
    return f"{took:.1f} (CPU {cpu - before:.1f})"


def serve_all(server: Server, numbers: range, *, publish: bool, subscribers: bool = True) -> float:
    """Open a producer on each topic, with `subscribers` a consumer on some; with `publish` send a message, which these
    acknowledge. Return the seconds that it took."""
    client = RawClient("127.0.0.1", server.port)
    begun = time.perf_counter()
    for first in range(0, len(numbers), GROUP):
        group = numbers[first : first + GROUP]
        subscribed = [number for number in group if subscribers and number % 4 == 0]
        client.socket.sendall(b"".join(map(producer, group)))
        answers(client, C.PRODUCER_SUCCESS, len(group))
        client.socket.sendall(b"".join(map(subscribe, subscribed)))
        answers(client, C.SUCCESS, len(subscribed))
        if publish:
            client.socket.sendall(b"".join(send_frame(place(number), 0, b"x" * 100) for number in group))
            receipts = answers(client, C.SEND_RECEIPT, len(group))
            places = {each.send_receipt.producer_id: each.send_receipt.message_id for each in receipts}
            client.socket.sendall(b"".join(ack(number, places[place(number)]) for number in subscribed))
            answers(client, C.ACK_RESPONSE, len(subscribed))
    took = time.perf_counter() - begun
    client.socket.close()
    return took


def place(number: int) -> int:
    """Return the id of the producer and the consumer of a topic on their connection."""
    return number + 1


def lookup(number: int) -> pb.BaseCommand:
    body = pb.CommandLookupTopic(topic=topic_of(number), request_id=place(number))
    return C(type=C.LOOKUP, lookupTopic=body)


def producer(number: int) -> bytes:
    body = pb.CommandProducer(topic=topic_of(number), producer_id=place(number), request_id=place(number))
    return frame(C(type=C.PRODUCER, producer=body))


def subscribe(number: int) -> bytes:
    body = pb.CommandSubscribe(
        topic=topic_of(number),
        subscription="s",
        consumer_id=place(number),
        request_id=place(number),
        subType=pb.CommandSubscribe.Shared,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    return frame(C(type=C.SUBSCRIBE, subscribe=body))


def ack(number: int, acked: pb.MessageIdData) -> bytes:
    body = pb.CommandAck(
        consumer_id=place(number), ack_type=pb.CommandAck.Individual, message_id=[acked], request_id=place(number)
    )
    return frame(C(type=C.ACK, ack=body))


def answers(client: RawClient, expected: int, count: int) -> list[pb.BaseCommand]:
    """Yield the next `count` answers, all of that type; PINGs are answered."""
    found: list[pb.BaseCommand] = []
    while len(found) < count:
        answer, _ = client.receive()
        if answer.type == C.PING:
            client.socket.sendall(PONG)
        elif answer.type == expected:
            found.append(answer)
        else:
            raise RuntimeError(f"unexpected answer: {answer}")
    return found
