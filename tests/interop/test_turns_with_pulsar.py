"""Apache Pulsar 4.2.4's broker and Quire's take turns, three times each, on one ZooKeeper and bookies of either kind.

At each change the next broker must show clients what the one before showed them, and what the client knows of its own
deeds: tests/interop/turns_parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.apache_broker import ApacheBroker
from tests.interop.java import ApacheBookie
from tests.interop.turns_parts.contents import Deduplicated, Partitioned, Schemas, Terminated
from tests.interop.turns_parts.policies import Policies
from tests.interop.turns_parts.side import Json, Part, Side
from tests.interop.turns_parts.subscriptions import Backlogs, Compacted, Delayed
from tests.support.broker_process import BrokerCluster, BrokerProcess, client_of
from tests.support.zookeeper import shared_server

TURNS = 6
SETTINGS: dict[str, object] = {
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "managedLedgerMaxEntriesPerLedger": 50,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeduplicationEntriesInterval": 10,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeleteInactiveTopicsEnabled": "false",
    "metadataStoreSessionTimeoutMillis": 4000,
    "numHttpServerThreads": 8,
}


PARTS: tuple[type[Part], ...] = (
    Backlogs,
    Schemas,
    Compacted,
    Delayed,
    Deduplicated,
    Terminated,
    Partitioned,
    Policies,
)


class Room:
    """Bookies of one kind, and a broker of each kind, of which one runs."""

    def __init__(self, folder: Path, bookies: str) -> None:
        self.cluster = BrokerCluster(folder, shared_server(), bookies=2 if bookies == "ours" else 0)
        uri = self.cluster.ledgers_uri
        count = 2 if bookies == "theirs" else 0
        # As Pulsar's bookkeeper.conf has it: a chunk of the largest size does not fit into BookKeeper's own default.
        frames: dict[str, object] = {"nettyMaxFrameSizeBytes": 5_253_120}
        self.theirs = [ApacheBookie(folder / f"apache{number}", uri, conf=frames) for number in range(count)]
        self.quire = self.cluster.broker(**SETTINGS)
        self.pulsar = ApacheBroker(folder / "pulsar", self.cluster.metadata_url, **SETTINGS)

    def start(self) -> None:
        for bookie in self.theirs:
            bookie.launch()
        if self.cluster.bookies:
            self.cluster.start_bookies()
        for bookie in self.theirs:
            bookie.wait_ready()

    def end(self) -> None:
        self.pulsar.kill()
        for bookie in self.theirs:
            bookie.kill()
        self.cluster.end()

    @contextmanager
    def side(self, turn: int) -> Iterator[Side]:
        """Run a broker of that turn, and stop it at the end; Pulsar's has the odd ones."""
        broker: BrokerProcess | ApacheBroker = self.pulsar if turn % 2 else self.quire
        broker.start()
        with client_of(broker, timeout_s=60) as client:
            yield Side(broker, client)
        broker.stop()


@contextmanager
def room(folder: Path, bookies: str) -> Iterator[Room]:
    made = Room(folder, bookies)
    try:
        made.start()
        yield made
    finally:
        made.end()
    made.quire.check_log()


def views(side: Side, used: list[Part]) -> dict[str, Json]:
    return {type(part).__name__: part.view(side) for part in used}


def differences(before: Json, after: Json, at: str = "") -> Iterator[str]:
    """Yield the places where two views differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=str):
            yield from differences(before.get(key, "missing"), after.get(key, "missing"), f"{at}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{at}/{number}")
    elif before != after:
        yield f"{at}: {before!r} -> {after!r}"


@pytest.mark.parametrize("bookies", ["theirs", "ours"])
def test_pulsar_and_quire_take_turns_and_clients_see_no_difference(bookies: str, tmp_path: Path) -> None:
    used: list[Part] = [each() for each in PARTS]
    with room(tmp_path, bookies) as made:
        before: dict[str, Json] = {}
        for turn in range(1, TURNS + 2):
            with made.side(turn) as side:
                if before:
                    found = list(differences(before, views(side, used)))
                    assert not found, "\n".join([f"turn {turn}", *found])
                if turn > TURNS:
                    break
                for part in used:
                    part.work(side, turn)
                before = views(side, used)
