"""Quire's brokers on three bookies of the original's, and on one of the original's and two of Quire's.

A bookie is killed while an official client publishes, then the broker that serves it; the other broker takes the topic
over and closes it. Then all are stopped and started again, and all messages exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pulsar
import pytest
import trio

from autorecovery.ledger_checker import LedgerChecker
from quire.ledger import LedgerClient, open_client
from quire.metadata.ledgers import LedgerMetadata
from quire.world.real import real_world
from tests.interop.java import ApacheBookie
from tests.support.bookie_process import BookieProcess
from tests.support.broker_process import BrokerCluster, client_of
from tests.support.process import start_all
from tests.support.zookeeper import shared_server

TOPIC = "persistent://public/default/orders"
STATS = "/admin/v2/persistent/public/default/orders/internalStats"
PATIENCE_MS = 30_000
PART = 150
"""Messages between two events."""
ROLLS_MAX = 50
"""Maximum number of rollovers until a bookie is used: of three, a ledger with two copies omits one each time."""


class Mixed:
    """Three bookies, some of the original's, some of Quire's, and two brokers; each entry is on two bookies."""

    def __init__(self, folder: Path, *, theirs: int) -> None:
        self.cluster = BrokerCluster(folder, shared_server(), bookies=3 - theirs)
        self.theirs = [ApacheBookie(folder / f"apache{number}", self.cluster.ledgers_uri) for number in range(theirs)]
        quorums = [f"managedLedgerDefault{each}" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")]
        self.brokers = [self.cluster.broker(**dict.fromkeys(quorums, 2)) for _ in range(2)]
        both: list[ApacheBookie | BookieProcess] = [*self.theirs, *self.cluster.bookies]
        self.bookies = {each.id: each for each in both}

    def start(self) -> None:
        for bookie in self.theirs:
            bookie.launch()
        self.cluster.start_bookies()
        for bookie in self.theirs:
            bookie.wait_ready()
        start_all(*self.brokers)

    def end(self) -> None:
        for bookie in self.theirs:
            bookie.kill()
        self.cluster.end()

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Return the answer of any live broker; redirects are followed."""
        broker = next(each for each in self.brokers if each.process is not None)
        answer = broker.ask(method, path, follow_redirects=True, **options)
        assert answer.is_success, answer.text
        return answer

    def internal_stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", STATS).json()
        return found

    def ledger_ids(self) -> list[int]:
        return [int(each["ledgerId"]) for each in self.internal_stats()["ledgers"]]

    def ledger_on(self, bookie_ids: Collection[str]) -> str:
        """Return one of these bookies that has the topic's ledger; the topic is unloaded until one has."""
        for _ in range(ROLLS_MAX):
            for each in self.metadata(self.ledger_ids()[-1]).fragments[-1].bookies:
                if each in bookie_ids:
                    return each
            self.ask("PUT", "/admin/v2/namespaces/public/default/unload")
        raise AssertionError(f"{ROLLS_MAX} ledgers, none on {bookie_ids}")

    def with_client(self, story: Callable[[LedgerClient], Any]) -> Any:
        async def main() -> Any:
            with trio.fail_after(60):
                async with open_client(real_world(), self.cluster.ledgers_uri) as client:
                    return await story(client)

        return trio.run(main)

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        found: LedgerMetadata = self.with_client(lambda client: client.read_metadata(ledger_id))
        return found

    def bad_copies(self, ledger_ids: Sequence[int]) -> list[object]:
        """Read every copy of every entry of closed ledgers; return the bad ones."""

        async def story(client: LedgerClient) -> list[object]:
            checker = LedgerChecker(client, rng=real_world().rng)
            found: list[object] = []
            for ledger_id in ledger_ids:
                metadata = await client.read_metadata(ledger_id)
                if metadata.last_entry_id >= 0:
                    found += await checker.check(ledger_id, metadata, percentage=100)
            return found

        bad: list[object] = self.with_client(story)
        return bad


@contextmanager
def mixed(folder: Path, *, theirs: int) -> Iterator[Mixed]:
    made = Mixed(folder, theirs=theirs)
    try:
        made.start()
        yield made
    finally:
        made.end()
    for broker in made.brokers:
        broker.check_log()


def publish(producer: pulsar.Producer, numbers: range) -> None:
    """Publish messages; on return each has its receipt."""
    failed: list[object] = []

    def receipt(result: pulsar.Result, _: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    for number in numbers:
        producer.send_async(b"%d" % number, receipt)
    producer.flush()
    assert not failed, failed[:3]


def receive(consumer: pulsar.Consumer, count: int) -> list[tuple[int, pulsar.Message]]:
    found = []
    for _ in range(count):
        message = consumer.receive(PATIENCE_MS)
        found.append((int(message.data()), message))
    return found


def read_all(client: pulsar.Client, count: int) -> list[int]:
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    found = [int(reader.read_next(PATIENCE_MS).data()) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


@pytest.mark.parametrize(("theirs", "killed"), [(3, "theirs"), (1, "theirs"), (1, "ours")])
def test_a_bookie_dies_then_a_broker_then_all_are_restarted_and_everything_is_there(
    theirs: int, killed: str, tmp_path: Path
) -> None:
    with mixed(tmp_path, theirs=theirs) as room, client_of(*room.brokers, timeout_s=60) as client:
        of_kind = {each.id for each in (room.theirs if killed == "theirs" else room.cluster.bookies)}
        # Retention, so that a reader finds in the end what was acknowledged too.
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        room.ask("POST", "/admin/v2/namespaces/public/default/retention", json=kept)
        consumer = client.subscribe(
            TOPIC, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        )
        doomed = room.ledger_on(of_kind)
        producer = client.create_producer(
            TOPIC, batching_enabled=False, block_if_queue_full=True, send_timeout_millis=0
        )

        publish(producer, range(PART))
        received = receive(consumer, PART)
        assert [number for number, _ in received] == list(range(PART))
        acknowledged = {number for number, _ in received if number % 3}
        for number, message in received:
            if number in acknowledged:
                consumer.acknowledge(message)

        ledger_id = room.ledger_ids()[-1]
        assert doomed in room.metadata(ledger_id).fragments[-1].bookies
        for number in range(PART, PART + 20):
            producer.send_async(b"%d" % number, None)
        room.bookies[doomed].kill()
        publish(producer, range(PART + 20, 2 * PART))
        fragments = room.metadata(ledger_id).fragments
        assert len(fragments) > 1
        assert doomed not in fragments[-1].bookies

        owner = room.cluster.owner_of(TOPIC)
        owner.kill()
        publish(producer, range(2 * PART, 3 * PART))
        # What was in flight, and what was acknowledged right before the kill, may come again; nothing is missing.
        missing = set(range(3 * PART)) - acknowledged
        seen: list[int] = [number for number, _ in received if number not in acknowledged]
        missing.difference_update(seen)
        while missing:
            [(number, message)] = receive(consumer, 1)
            missing.discard(number)
            if number in acknowledged or (number >= 2 * PART and number % 2):
                consumer.acknowledge(message)
                acknowledged.add(number)
        consumer.close()
        assert read_all(client, 3 * PART) == list(range(3 * PART))
        assert room.cluster.owner_of(TOPIC) is not owner

        for broker in room.brokers:
            if broker is not owner:
                assert broker.stop() == 0
        room.bookies[doomed].start()
        for broker in room.brokers:
            broker.start()
        again = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
        left = sorted(set(range(3 * PART)) - acknowledged)
        assert sorted(number for number, _ in receive(again, len(left))) == left
        with pytest.raises(pulsar.Timeout):
            again.receive(300)
        publish(producer, range(3 * PART, 3 * PART + 1))
        assert read_all(client, 3 * PART + 1) == list(range(3 * PART + 1))
        assert room.bad_copies(room.ledger_ids()[:-1]) == []
