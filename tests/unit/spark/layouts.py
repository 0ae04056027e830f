"""Topics with a layout from a seed, and ranges of them: batches, compression, chunks, quorums, ledgers, trims."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pulsar

from quire.cli.messages.chunking import pack_chunks
from quire.client.client import open_client
from quire.client.options import ClientOptions
from quire.client.packing import pack
from quire.world.real import real_world
from tests.support import web
from tests.support.small_cluster import SmallCluster

QUORUMS = {"one": (1, 1, 1), "striped": (3, 2, 2), "whole": (3, 3, 2)}
"""Namespaces of `public`, with ensemble size, write quorum and ack quorum."""
KEEPER = "keeper"
"""Subscription that keeps the data of a topic, up to its position."""
KEYS = {
    "managedLedgerMaxEntriesPerLedger": 9,
    "transactionCoordinatorEnabled": True,
    "defaultRetentionTimeInMinutes": 0,
    "defaultRetentionSizeInMB": 0,
}
"""Keys of the broker: short ledgers, transactions, and nothing is kept but for subscriptions."""
COMPRESSIONS = [
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
]


def make_namespaces(cluster: SmallCluster) -> None:
    for name, (ensemble, write, ack) in QUORUMS.items():
        ask(cluster, "PUT", f"namespaces/public/{name}", {"bundles": {"numBundles": 1, "boundaries": []}})
        persistence = {
            "bookkeeperEnsemble": ensemble,
            "bookkeeperWriteQuorum": write,
            "bookkeeperAckQuorum": ack,
            "managedLedgerMaxMarkDeleteRate": 0,
        }
        ask(cluster, "POST", f"namespaces/public/{name}/persistence", persistence)


@dataclass
class Layout:
    """A filled topic."""

    topic: str
    partitions: list[str]
    quorum: str
    trimmed: bool
    starts: list[dict[str, str]]
    """Options of batch reads of it."""

    @property
    def failures_max(self) -> int:
        """Return the number of bookies that may fail while every entry has a copy."""
        return QUORUMS[self.quorum][1] - 1


def fill(cluster: SmallCluster, client: pulsar.Client, seed: int) -> Layout:
    """Make the topic of a seed."""
    rng = Random(seed)
    quorum = rng.choice(list(QUORUMS))
    topic = f"persistent://public/{quorum}/seed{seed}"
    count = rng.choice([0, 0, 2])
    if count:
        ask(cluster, "PUT", f"{path_of(topic)}/partitions", count)
    partitions = [f"{topic}-partition-{number}" for number in range(count)] or [topic]
    for name in partitions:
        client.subscribe(name, KEEPER).close()
    for step in range(rng.randint(4, 8)):
        _publish(cluster, client, rng.choice(partitions), rng, step)
    starts = _starts(cluster, partitions, rng)
    trimmed = rng.random() < 0.4 and any([_trim(cluster, name, rng) for name in partitions])
    return Layout(topic, partitions, quorum, trimmed, starts)


def _starts(cluster: SmallCluster, partitions: list[str], rng: Random) -> list[dict[str, str]]:
    starts: list[dict[str, str]] = [{}, {"minPartitions": str(rng.randint(2, 5))}]
    stats = {name: ask(cluster, "GET", f"{path_of(name)}/internalStats") for name in partitions}
    for _ in range(3):
        places = {name: sorted(_place(stats[name], rng) for _ in range(2)) for name in partitions}
        starts.append(
            {
                "startingOffsets": json.dumps({name: _shown(found[0]) for name, found in places.items()}),
                "endingOffsets": json.dumps({name: _shown(found[1], whole=True) for name, found in places.items()}),
                "minPartitions": str(rng.randint(1, 3)),
                "chunkedMessageHold": str(rng.choice([1, 20])),
            }
        )
    return starts


def _publish(cluster: SmallCluster, client: pulsar.Client, topic: str, rng: Random, step: int) -> None:
    if rng.random() < 0.25:
        cluster.call(_publish_chunks, cluster.url, topic, rng, step)
        return
    producer = client.create_producer(
        topic,
        compression_type=rng.choice(COMPRESSIONS),
        batching_enabled=rng.random() < 0.6,
        batching_max_publish_delay_ms=5,
        batching_max_messages=rng.randint(2, 9),
        block_if_queue_full=True,
    )
    try:
        for number in range(rng.randint(1, 25)):
            more: dict[str, Any] = {}
            if rng.random() < 0.3:
                more["partition_key"] = f"key{rng.randint(0, 5)}"
            if rng.random() < 0.2:
                more["properties"] = {"step": str(step), "number": str(number)}
            if rng.random() < 0.2:
                more["event_timestamp"] = rng.randint(1, 1 << 40)
            value = b"%d %d " % (step, number) + rng.randbytes(rng.choice([0, 10, 300, 2000]))
            producer.send_async(value, None, **more)
        producer.flush()
    finally:
        producer.close()


async def _publish_chunks(url: str, topic: str, rng: Random, step: int) -> None:
    """Publish two messages in pieces, with the pieces and plain messages between each other."""
    async with open_client(real_world(), url, ClientOptions()) as client:
        producer = await client.producer(topic)
        parts = [
            pack_chunks(
                b"%d %d " % (step, number) + rng.randbytes(rng.randint(3000, 9000)),
                b"key",
                [("step", str(step))],
                0,
                compression=rng.choice(["none", "lz4", "zlib", "zstd", "snappy"]),
                message_size_max=2000,
                uuid=f"{step}-{number}",
            )
            for number in range(2)
        ]
        parts.append(pack([b"%d between %d" % (step, number) for number in range(rng.randint(0, 6))], batch=False))
        while any(parts):
            await producer.send([rng.choice([part for part in parts if part]).pop(0)])
        await producer.flush()


def _trim(cluster: SmallCluster, name: str, rng: Random) -> bool:
    """Delete the ledgers before a random one; return whether there was one to delete."""
    ledgers = ask(cluster, "GET", f"{path_of(name)}/internalStats")["ledgers"]
    if len(ledgers) < 2:
        return False
    trim_before(cluster, name, ledgers[rng.randrange(1, len(ledgers))]["ledgerId"])
    return True


def trim_before(cluster: SmallCluster, name: str, ledger_id: int) -> None:
    """Delete the ledgers of a topic before this one."""
    ask(cluster, "POST", f"{path_of(name)}/subscription/{KEEPER}/resetcursor", {"ledgerId": ledger_id, "entryId": 0})
    ask(cluster, "POST", f"{path_of(name)}/trim")


def _place(stats: dict[str, Any], rng: Random) -> tuple[int, int, int]:
    """Return a place in the log: ledger, entry, and the message in it."""
    ledgers = stats["ledgers"]
    ledger = rng.choice(ledgers)
    last = ledger is ledgers[-1]
    confirmed = int(stats["lastConfirmedEntry"].partition(":")[2]) + 1 if last else 0
    in_last = int(stats["lastConfirmedEntry"].partition(":")[0]) == ledger["ledgerId"]
    entries = ledger["entries"] or (confirmed if in_last else 0)
    return ledger["ledgerId"], rng.randint(0, entries), rng.choice([0, 0, 2])


def _shown(place: tuple[int, int, int], *, whole: bool = False) -> str:
    return f"{place[0]}:{place[1]}" + (f":{place[2]}" if place[2] and not whole else "")


def path_of(topic: str) -> str:
    """Return a topic as a part of the path of REST requests."""
    return topic.replace("://", "/")


def ask(cluster: SmallCluster, method: str, path: str, body: Any = None) -> Any:
    """Make a REST request of the broker; return the answer."""
    more = {} if body is None else {"json": body}
    answer = web.request(method, f"{cluster.web}/admin/v2/{path}", **more)
    assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json() if answer.text else None
