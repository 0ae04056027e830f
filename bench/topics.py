"""Many topics on one standalone server: memory per topic, time to stop, and time until all are served again.

    scripts/bench topics [--topics 20000] [--folder F]

Each topic gets a producer that sends one message, and each fourth a subscription that acknowledges it. Nothing here is
a test: the figures are a machine's, their ratios are the program's.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

from bench.procs import cpu_s, pss_mb, tree
from bench.raw import RawClient, frame, send_frame
from bench.servers import Server, quire
from bench.waiting import poll_until
from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
GROUP = 200
"""Requests under way at once."""
STOP_S = 600
SETTLE_S = 10.0
"""Maximum time until memory is read, so that memory released late counts."""
SETTLED_MB = 0.5
"""Decrease below which memory has settled between two looks."""
LOOK_S = 0.5


def topic_of(number: int) -> str:
    return f"persistent://public/default/many-{number}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="keeps the server's data and log; a temporary folder otherwise")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with quire(folder) as server:
            empty_mb = memory(server)
            took = serve_all(server, options.topics, publish=True)
            used_mb = memory(server)
            report("made", options.topics, took, server)
            each_kb = 1024 * (used_mb - empty_mb) / options.topics
            print(f"memory: {empty_mb:.0f} -> {used_mb:.0f} MB, {each_kb:.1f} KB per topic")
            stop(server, "with its topics loaded")
        begun = time.perf_counter()
        with quire(folder) as server:
            print(f"start: {time.perf_counter() - begun:.1f} s until it listens")
            took = serve_all(server, options.topics, publish=False)
            report("served again", options.topics, took, server)
            stop(server, "with its topics loaded again")
    return 0


def memory(server: Server) -> float:
    """Return the memory in MB, when it has settled."""
    seen = [pss_mb(tree(server.process.pid))]

    def has_settled() -> bool:
        seen.append(pss_mb(tree(server.process.pid)))
        return len(seen) > 2 and seen[-2] - seen[-1] < SETTLED_MB

    poll_until(has_settled, SETTLE_S, poll_s=LOOK_S)
    return seen[-1]


def report(what: str, topics: int, took_s: float, server: Server) -> None:
    cpu = cpu_s(tree(server.process.pid))
    print(
        f"{topics} topics {what}: {took_s:.1f} s, {1000 * took_s / topics:.2f} ms each; CPU so far {cpu:.1f} s",
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


def serve_all(server: Server, topics: int, *, publish: bool) -> float:
    """Open a producer on each topic, and with `publish` send a message and make some subscriptions acknowledge it."""
    client = RawClient("127.0.0.1", server.port)
    begun = time.perf_counter()
    for first in range(0, topics, GROUP):
        group = range(first, min(first + GROUP, topics))
        subscribed = [number for number in group if number % 4 == 0]
        client.socket.sendall(b"".join(map(producer, group)))
        answers(client, C.PRODUCER_SUCCESS, len(group))
        client.socket.sendall(b"".join(map(subscribe, subscribed)))
        answers(client, C.SUCCESS, len(subscribed))
        if publish:
            client.socket.sendall(b"".join(send_frame(number, 0, b"x" * 100) for number in group))
            receipts = answers(client, C.SEND_RECEIPT, len(group))
            places = {each.send_receipt.producer_id: each.send_receipt.message_id for each in receipts}
            client.socket.sendall(b"".join(ack(number, places[number]) for number in subscribed))
            answers(client, C.ACK_RESPONSE, len(subscribed))
    took = time.perf_counter() - begun
    client.socket.close()
    return took


def producer(number: int) -> bytes:
    body = pb.CommandProducer(topic=topic_of(number), producer_id=number, request_id=number)
    return frame(C(type=C.PRODUCER, producer=body))


def subscribe(number: int) -> bytes:
    body = pb.CommandSubscribe(
        topic=topic_of(number),
        subscription="s",
        consumer_id=number,
        request_id=number,
        subType=pb.CommandSubscribe.Shared,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    return frame(C(type=C.SUBSCRIBE, subscribe=body))


def ack(number: int, place: pb.MessageIdData) -> bytes:
    body = pb.CommandAck(consumer_id=number, ack_type=pb.CommandAck.Individual, message_id=[place], request_id=number)
    return frame(C(type=C.ACK, ack=body))


def answers(client: RawClient, expected: int, count: int) -> list[pb.BaseCommand]:
    """Yield the next `count` answers, all of that type; PINGs are answered."""
    found: list[pb.BaseCommand] = []
    while len(found) < count:
        answer, _ = client.receive()
        if answer.type == C.PING:
            client.socket.sendall(frame(C(type=C.PONG, pong=pb.CommandPong())))
        elif answer.type == expected:
            found.append(answer)
        else:
            raise RuntimeError(f"unexpected answer: {answer}")
    return found
