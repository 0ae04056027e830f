"""Topics with a layout from a seed, and ranges of them: batches, compression, chunks, quorums, ledgers, trims."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pulsar

from tests.support import web
from tests.support.small_cluster import SmallCluster

QUORUMS = {"one": (1, 1, 1), "striped": (3, 2, 2), "whole": (3, 3, 2)}
"""Namespaces of `public`, with ensemble size, write quorum and ack quorum."""
KEEPER = "keeper"
"""Subscription that keeps the data of a topic, up to its position."""
KEYS = {
    "managedLedgerMaxEntriesPerLedger": 9,
    "maxMessageSize": 20_000,
    "defaultRetentionTimeInMinutes": 0,
    "defaultRetentionSizeInMB": 0,
}
"""Keys of the broker: short ledgers, chunks of small messages, and nothing is kept but for subscriptions."""
COMPRESSIONS = [
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
]


def make_namespaces(cluster: SmallCluster) -> None:
    for name, (ensemble, write, ack) in QUORUMS.items():
        _ask(cluster, "PUT", f"namespaces/public/{name}", {"bundles": {"numBundles": 1, "boundaries": []}})
        persistence = {
            "bookkeeperEnsemble": ensemble,
            "bookkeeperWriteQuorum": write,
            "bookkeeperAckQuorum": ack,
            "managedLedgerMaxMarkDeleteRate": 0,
        }
        _ask(cluster, "POST", f"namespaces/public/{name}/persistence", persistence)


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
        _ask(cluster, "PUT", f"{_path(topic)}/partitions", count)
    partitions = [f"{topic}-partition-{number}" for number in range(count)] or [topic]
    for name in partitions:
        client.subscribe(name, KEEPER).close()
    for step in range(rng.randint(4, 8)):
        _publish(client, rng.choice(partitions), rng, step)
    starts = _starts(cluster, partitions, rng)
    trimmed = rng.random() < 0.4 and any([_trim(cluster, name, rng) for name in partitions])
    return Layout(topic, partitions, quorum, trimmed, starts)


def _starts(cluster: SmallCluster, partitions: list[str], rng: Random) -> list[dict[str, str]]:
    starts: list[dict[str, str]] = [{}, {"minPartitions": str(rng.randint(2, 5))}]
    stats = {name: _ask(cluster, "GET", f"{_path(name)}/internalStats") for name in partitions}
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


def _publish(client: pulsar.Client, topic: str, rng: Random, step: int) -> None:
    chunked = rng.random() < 0.25
    batched = not chunked and rng.random() < 0.5
    producer = client.create_producer(
        topic,
        compression_type=rng.choice(COMPRESSIONS),
        batching_enabled=batched,
        batching_max_publish_delay_ms=5,
        batching_max_messages=rng.randint(2, 9),
        chunking_enabled=chunked,
        block_if_queue_full=True,
    )
    try:
        for number in range(rng.randint(1, 4) if chunked else rng.randint(1, 25)):
            size = rng.randint(30_000, 90_000) if chunked else rng.choice([0, 10, 300, 2000])
            more: dict[str, Any] = {}
            if rng.random() < 0.3:
                more["partition_key"] = f"key{rng.randint(0, 5)}"
            if rng.random() < 0.2:
                more["properties"] = {"step": str(step), "number": str(number)}
            if rng.random() < 0.2:
                more["event_timestamp"] = rng.randint(1, 1 << 40)
            producer.send_async(b"%d %d " % (step, number) + rng.randbytes(size), None, **more)
        producer.flush()
    finally:
        producer.close()


def _trim(cluster: SmallCluster, name: str, rng: Random) -> bool:
    """Delete the ledgers before a random one; return whether there was one to delete."""
    ledgers = _ask(cluster, "GET", f"{_path(name)}/internalStats")["ledgers"]
    if len(ledgers) < 2:
        return False
    kept = ledgers[rng.randrange(1, len(ledgers))]["ledgerId"]
    _ask(cluster, "POST", f"{_path(name)}/subscription/{KEEPER}/resetcursor", {"ledgerId": kept, "entryId": 0})
    _ask(cluster, "POST", f"{_path(name)}/trim")
    return True


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


def _path(topic: str) -> str:
    return topic.replace("://", "/")


def _ask(cluster: SmallCluster, method: str, path: str, body: Any = None) -> Any:
    more = {} if body is None else {"json": body}
    answer = web.request(method, f"{cluster.web}/admin/v2/{path}", **more)
    assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json() if answer.text else None
