"""Many topics on one standalone server, of which a few are active: rate of creation, memory per topic, time to stop,
time from a restart to the first receipt, and time until all are served again.

    scripts/bench topics [--topics 20000] [--active 1000] [--folder F]

Each topic is created by a producer. Then each sends one message, and each fourth topic gets a subscription that
acknowledges it. After a stop, the producers of the active topics connect to the restarted server as soon as it listens,
and send; then those of all others come, and all leave. The memory of an idle topic is read when no client is connected:

    created    with its open ledger, some time after the last message
    unloaded   of a restarted server, above that of one without topics: its nodes in the metadata
    loaded     after the restart, above the unloaded ones

Inactive topics are not deleted. Nothing here is a test: the figures are a machine's, their ratios are the program's.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

from bench.procs import cpu_s, pss_mb, scheduled_s, tree
from bench.raw import PONG, RawClient, frame, send_frame
from bench.servers import Server, quire
from bench.waiting import poll_until
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


def topic_of(number: int) -> str:
    return f"persistent://public/default/many-{number}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--active", type=int, default=1000, help="topics whose producers come first after the restart")
    parser.add_argument("--folder", type=Path, help="keeps the server's data and log; a temporary folder otherwise")
    options = parser.parse_args()
    topics, active = options.topics, min(options.active, options.topics)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with quire(folder, KEYS) as server:
            warm_up(server)
            empty_mb = memory(server)
            took = serve_all(server, range(topics), subscribers=False, publish=False)
            report("created", topics, took, server)
            took = serve_all(server, range(topics), publish=True)
            report("published to", topics, took, server)
            each_topic("created", topics, empty_mb, memory(server))
            stop(server, "with its topics loaded")
        with quire(folder, KEYS) as server:
            first, last, cpu = restart_to_receipts(server, range(active))
            print(
                f"restart to the first receipt: {first:.2f} s (CPU {cpu:.2f} s); "
                f"to those of {active} topics: {last:.2f} s",
                flush=True,
            )
            unloaded_mb = memory(server)
            took = serve_all(server, range(topics), publish=False)
            report("served again", topics, took, server)
            each_topic("loaded", topics - active, unloaded_mb, memory(server))
            stop(server, "with its topics loaded again")
        with quire(folder, KEYS) as server:
            warm_up(server)
            each_topic("unloaded", topics, empty_mb, memory(server))
            stop(server, "without loaded topics")
    return 0


def warm_up(server: Server) -> None:
    """Serve a topic, so that the memory for what the first one needs is not counted as that of the others."""
    serve_all(server, range(-1, 0), publish=True)


def each_topic(what: str, topics: int, before_mb: float, after_mb: float) -> None:
    each_kb = 1024 * (after_mb - before_mb) / max(1, topics)
    print(f"memory: {before_mb:.0f} -> {after_mb:.0f} MB, {each_kb:.2f} KB per {what} topic", flush=True)


def restart_to_receipts(server: Server, numbers: range) -> tuple[float, float, float]:
    """Publish to these topics at once; return the seconds from the start of the server to the first receipt and to the
    last one, and the CPU that the server has used by the first one."""
    client = RawClient("127.0.0.1", server.port)
    client.socket.sendall(b"".join(producer(number) for number in numbers))
    receipts = 0
    first = last = cpu = 0.0
    while receipts < len(numbers):
        answer, _ = client.receive()
        if answer.type == C.PING:
            client.socket.sendall(PONG)
        elif answer.type == C.PRODUCER_SUCCESS:
            client.socket.sendall(send_frame(answer.producer_success.request_id, 1, b"x" * 100))
        elif answer.type == C.SEND_RECEIPT:
            receipts += 1
            last = time.perf_counter() - server.started
            if not first:
                first, cpu = last, scheduled_s(server.pids)
        else:
            raise RuntimeError(f"unexpected answer: {answer}")
    client.socket.close()
    return first, last, cpu


def memory(server: Server) -> float:
    """Return the memory in MB, when it has settled."""
    time.sleep(IDLE_S)
    seen = [pss_mb(tree(server.process.pid))]

    def has_settled() -> bool:
        seen.append(pss_mb(tree(server.process.pid)))
        return len(seen) > 2 and seen[-2] - seen[-1] < SETTLED_MB

    poll_until(has_settled, SETTLE_S, poll_s=LOOK_S)
    return seen[-1]


def report(what: str, topics: int, took_s: float, server: Server) -> None:
    cpu = cpu_s(tree(server.process.pid))
    print(
        f"{topics} topics {what}: {took_s:.1f} s, {topics / took_s:.0f}/s, {1000 * took_s / topics:.2f} ms each; "
        f"CPU so far {cpu:.1f} s",
        flush=True,
    )


def stop(server: Server, what: str) -> None:
    before = cpu_s(tree(server.process.pid))
    begun = time.perf_counter()
    server.process.send_signal(signal.SIGTERM)
    while server.process.poll() is None and time.perf_counter() - begun < STOP_S:
        cpu = cpu_s(tree(server.process.pid)) or before
        time.sleep(0.02)
    took = time.perf_counter() - begun
    print(f"stop {what}: {took:.1f} s, CPU {cpu - before:.1f} s, exit code {server.process.returncode}", flush=True)


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
