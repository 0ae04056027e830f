"""Fuzzed frames at the ports of real processes: of a broker without and with TLS, and of a bookie.

Frames count as the server counts them. Meanwhile the process lives, logs no ERROR, keeps its size and its descriptors,
and serves a good client. With `--full` there are a million frames.
"""

from __future__ import annotations

import contextlib
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.metadata.clusters import init_new_cluster
from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.real import real_world
from tests.support import web
from tests.support.bookie_process import BookieProcess, entry
from tests.support.certificates import Authority
from tests.support.effort import effort
from tests.support.fuzzing import bookie_frames, pulsar_frames
from tests.support.fuzzing.clients import Connect, Converse, Sent, encrypted, fuzz, plain
from tests.support.process import ServerProcess
from tests.support.pulsar_frames import C, is_whole
from tests.support.raw import RawClient
from tests.support.server import free_port, standalone
from tests.support.waiting import wait_until
from tests.support.zookeeper import ask, own_root, shared_server

pytestmark = pytest.mark.cluster

GOOD = "persistent://public/default/good"
FRAMES = 40
"""Frames of a conversation."""
GROWTH_MB = 64
"""Most that a process may grow from its first quarter of a run to its end."""
LOOK_S = 0.25


class Watched:
    """A server under fuzzing: what it counted, and what it holds."""

    def __init__(self, server: ServerProcess, metrics_url: str, counter: str) -> None:
        assert server.process is not None
        self._server = server
        self._url = metrics_url
        self._counter = (f"{counter} ", f"{counter}_total ")
        self.folder = Path(f"/proc/{server.process.pid}")

    def frames(self) -> int:
        text = web.get(self._url, timeout=60).text
        [line] = [line for line in text.splitlines() if line.startswith(self._counter)]
        return int(float(line.rpartition(" ")[2]))

    def size_mb(self) -> float:
        """Return the memory that is the process's own, without pages of files."""
        [line] = [line for line in (self.folder / "status").read_text().splitlines() if line.startswith("RssAnon:")]
        return int(line.split()[1]) / 1024

    def descriptors(self) -> int:
        return len(os.listdir(self.folder / "fd"))

    def fuzz(self, connect: Connect, converse: Converse, count: int, seed: int) -> None:
        """Send frames until the server has counted `count` more, and check that it has not grown meanwhile."""
        begin = self.frames()
        began = time.monotonic()
        held = self.descriptors()
        first_mb = 0.0
        counted = begin

        async def run() -> Sent:
            def enough(sent: Sent) -> bool:
                return counted - begin >= count

            async def look() -> None:
                nonlocal counted, first_mb
                said = 0
                while counted - begin < count:
                    await trio.sleep(LOOK_S)
                    counted = await trio.to_thread.run_sync(self.frames)
                    if not first_mb and counted - begin > count // 4:
                        first_mb = self.size_mb()
                    if (counted - begin) // 50_000 > said:
                        said = (counted - begin) // 50_000
                        print(f"{counted - begin} frames, {self.size_mb():.0f} MB", flush=True)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                return await fuzz(connect, converse, enough, seed=seed)
            raise AssertionError("the nursery returns what is in it")

        sent = trio.run(run)
        seconds = time.monotonic() - began
        last_mb = self.size_mb()
        print(
            f"{counted - begin} frames counted, {sent.frames} sent over {sent.connections} connections in "
            f"{seconds:.0f} s; {first_mb:.0f} MB after a quarter, {last_mb:.0f} MB at the end",
            flush=True,
        )
        assert last_mb - first_mb < GROWTH_MB
        wait_until(lambda: self.descriptors() <= held + 10, f"not above {held} descriptors and 10", within=30)


@contextlib.contextmanager
def beside(work: Callable[[int], None]) -> Iterator[list[float]]:
    """Repeat `work(number)` in a thread; the times that each took, in seconds. Its failure fails the test."""
    took: list[float] = []
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            begin = time.monotonic()
            work(len(took))
            took.append(time.monotonic() - begin)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        try:
            yield took
        finally:
            stop.set()
    done.result()
    print(f"the good client was served {len(took)} times, at worst after {max(took):.2f} s", flush=True)


def round_trip(client: RawClient, number: int) -> None:
    """Publish one message, receive and acknowledge it."""
    payload = b"%d" % number
    client.send_message(payload, number)
    receipts = 0
    found = None
    while found is None or not receipts:
        command, tail = client.receive_frame()
        if command.type == C.SEND_RECEIPT:
            receipts += 1
        elif command.type == C.MESSAGE:
            assert tail.endswith(payload)
            found = command.message.message_id
        elif command.type == C.PING:
            client.pong()
        else:
            assert command.type == C.ACTIVE_CONSUMER_CHANGE, command
    client.send_ack(found)
    client.flow(1)


def check_stored(port: int) -> int:
    """Read what the topics have kept; return how many entries. Each must have the checksum that it was sent with."""
    read = 0
    for topic in [each for each in pulsar_frames.TOPICS if "/fuzz-" in each and "parts" not in each]:
        with RawClient(port) as client:
            client.subscribe(topic, "check", durable=False, initialPosition=pb.CommandSubscribe.Earliest)
            client.flow(500)
            for _ in range(500):
                if client.silent(0.5):
                    break
                command, tail = client.receive_frame()
                if command.type == C.MESSAGE:
                    assert is_whole(tail), command
                    read += 1
    return read


@pytest.mark.parametrize("with_tls", [False, True])
def test_a_broker_handles_fuzzed_frames(tmp_path: Path, with_tls: bool) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("localhost")
    tls_port = free_port()
    conf: dict[str, object] = {
        "brokerServicePortTls": tls_port,
        "tlsCertificateFilePath": pair.certificate,
        "tlsKeyFilePath": pair.key,
        "advertisedAddress": "localhost",
        "maxTopicsPerNamespace": 100,
        "maxSubscriptionsPerTopic": 50,
        "transactionCoordinatorEnabled": "true",
        "managedLedgerMaxEntriesPerLedger": 2000,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "ttlDurationDefaultInSeconds": 60,
        # Small caches, which are full before the first quarter of a run is over.
        "managedLedgerCacheSizeMB": 8,
        "dbStorage_writeCacheMaxSizeMb": 8,
        "dbStorage_readAheadCacheMaxSizeMb": 4,
    }
    with standalone(tmp_path, conf) as server, RawClient(server.port) as good:
        good.subscribe(GOOD)
        good.flow(1)
        good.producer(GOOD)
        for topic in pulsar_frames.TOPICS[:6]:
            with RawClient(server.port) as keeper:
                keeper.subscribe(topic, "kept", subType=pb.CommandSubscribe.Shared)
        watched = Watched(server, f"{server.web}/metrics", "quire_frames")
        context = ssl.create_default_context(cafile=str(authority.trust))
        connect = encrypted(tls_port, context) if with_tls else plain(server.port)
        count = effort(quick=2000, full=300_000 if with_tls else 400_000)
        with beside(partial(round_trip, good)) as took:
            watched.fuzz(connect, lambda rng: pulsar_frames.conversation(rng, rng.randrange(5, 2 * FRAMES)), count, 7)
        assert took
        assert check_stored(server.port) > 0


async def init_cluster(store: ZooKeeperStore) -> None:
    await init_new_cluster(store, "/ledgers", rng=real_world().rng)


def test_a_bookie_handles_fuzzed_frames(tmp_path: Path) -> None:
    zookeeper = shared_server()
    root = own_root()

    ask(zookeeper.config(root), init_cluster)
    uri = f"zk+hierarchical://127.0.0.1:{zookeeper.port}{root}/ledgers"
    bookie = BookieProcess(
        tmp_path / "bookie", uri, httpServerEnabled="true", httpServerPort=free_port(), dbStorage_writeCacheMaxSizeMb=8
    )
    try:
        bookie.start()
        watched = Watched(
            bookie, f"http://127.0.0.1:{bookie.settings['httpServerPort']}/metrics", "quire_bookie_frames"
        )
        wire = bookie.connect()

        def add_and_read(number: int) -> None:
            assert wire.add(7, number) == 0
            assert wire.read(7, number) == (0, entry(7, number))

        def converse(rng: random.Random) -> tuple[list[bytes], list[bytes]]:
            return bookie_frames.conversation(rng, rng.randrange(5, 2 * FRAMES))

        with beside(add_and_read) as took:
            watched.fuzz(plain(bookie.port), converse, effort(quick=2000, full=300_000), 7)
        bookie.kill()
        bookie.start()  # replays its journal
        wire = bookie.connect()
        for number in range(0, len(took), 1 + len(took) // 500):
            assert wire.read(7, number) == (0, entry(7, number))
        assert bookie.stop() == 0
    finally:
        bookie.kill()
    bookie.check_log()
