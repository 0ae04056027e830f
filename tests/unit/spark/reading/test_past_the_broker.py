"""Reads past the broker where bookies alone would give a wrong answer, or none: transactions, open ledgers, repair,
deletion, and bookies out of reach."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quire.client.client import open_client
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.packing import pack
from quire.metadata.ledger_metadata import Fragment
from quire.spark.errors import DataLossError, SourceUnavailableError, SparkSourceError
from quire.spark.planning.stored import StoredLedger
from quire.world.real import real_world
from tests.support import web
from tests.support.effort import effort
from tests.support.small_cluster import SmallCluster, small_cluster
from tests.support.waiting import wait_until
from tests.unit.spark.layouts import ask, path_of, trim_before
from tests.unit.spark.reading.via import Links, begin, forget_entries, outcome, plan, read, record_readers, values

WHOLE = "persistent://public/whole"
STRIPED = "persistent://public/striped"
VIAS = ("broker", "bookies", "auto")


def publish(client: pulsar.Client, topic: str, count: int, first: int = 0) -> list[bytes]:
    client.subscribe(topic, "keeper").close()  # nothing is trimmed
    sent = [b"%06d" % number for number in range(first, first + count)]
    producer = client.create_producer(topic, batching_enabled=False)
    for value in sent:
        producer.send_async(value, None)
    producer.flush()
    producer.close()
    return sent


def state_of(cluster: SmallCluster, topic: str) -> tuple[list[int], str, str]:
    """Return the ledgers of a topic, the state of its log, and the metadata of its last ledger."""
    stats = ask(cluster, "GET", f"{path_of(topic)}/internalStats?metadata=true")
    return [each["ledgerId"] for each in stats["ledgers"]], stats["state"], stats["ledgers"][-1]["metadata"]


def elsewhere(ledger: StoredLedger) -> StoredLedger:
    """Return a ledger as if its ensembles were other bookies, which have none of its entries."""
    fragments = tuple(
        Fragment(each.first_entry_id, tuple(f"127.0.0.1:{number + 1}" for number in range(len(each.bookies))))
        for each in ledger.metadata.fragments
    )
    return replace(ledger, metadata=replace(ledger.metadata, fragments=fragments))


class LiveWriter:
    """Producer in a thread that sends numbers without a pause, a window at a time."""

    def __init__(self, url: str, topic: str) -> None:
        self.sent = self.confirmed = self.failed = 0
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        self._client = pulsar.Client(url, operation_timeout_seconds=30, logger=logger)
        self._producer = self._client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush()
        self._client.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                self._producer.send_async(b"%d" % self.sent, self._confirmed)
                self.sent += 1
            self._producer.flush()

    def _confirmed(self, result: Any, _id: Any) -> None:
        if result == pulsar.Result.Ok:
            self.confirmed += 1
        else:
            self.failed += 1


async def transact(url: str, topic: str) -> None:
    """Publish ten messages of a committed transaction among plain ones, and ten of an aborted one."""
    async with open_client(real_world(), url, ClientOptions()) as client:
        transactions = await client.transactions()
        producer = await client.transaction_producer(topic)
        plain = await client.producer(topic)
        for ends in (True, False):
            transaction = await transactions.begin(timeout_s=60)
            await transaction.publishes_to(producer.topic)
            for number in range(10):
                await plain.send(pack([b"plain %d %d" % (ends, number)], batch=False))
                await producer.send_in(transaction.id, pack([b"in %d %d" % (ends, number)], batch=False))
            await producer.flush()
            await plain.flush()
            await (transaction.commit() if ends else transaction.abort())
        for number in range(10):
            await plain.send(pack([b"after %d" % number], batch=False))
        await plain.flush()


def test_messages_of_aborted_transactions_are_not_rows(cluster: SmallCluster, client: pulsar.Client, links: Links):
    topic = f"{WHOLE}/transactions"
    sent = publish(client, topic, 25)
    cluster.call(transact, cluster.url, topic)
    sent += [word % number for number in range(10) for word in (b"plain 1 %d", b"in 1 %d")]
    sent += [b"plain 0 %d" % number for number in range(10)] + [b"after %d" % number for number in range(10)]
    for via in VIAS:
        found = outcome(cluster.options, topic, via)
        assert not isinstance(found, str), found
        assert values(found) == sent, via
    assert links.used


def test_no_reader_of_a_broker_is_opened_for_what_is_read_from_bookies(
    cluster: SmallCluster, client: pulsar.Client, links: Links, monkeypatch: pytest.MonkeyPatch
):
    opened = record_readers(monkeypatch)
    topic = f"{STRIPED}/past"
    sent = publish(client, topic, 40)
    assert values(read(*plan(cluster.options, topic, "bookies"))) == sent
    assert opened == []
    options, tasks = plan(cluster.options, topic, "auto")
    assert values(read(options, tasks)) == sent
    assert opened == [MessageId(tasks[0].ranges[-1].ledger_id, 0)]  # the open ledger
    assert values(read(*plan(cluster.options, topic, "broker"))) == sent
    assert opened[1:] == [MessageId(tasks[0].ranges[0].ledger_id, 0)]


def test_rows_that_are_read_from_bookies_cost_the_broker_nothing(
    cluster: SmallCluster, client: pulsar.Client, links: Links
):
    """The broker counts no entry that it has read for them, be they 40 or 400."""
    topic = f"{STRIPED}/free"

    def spent() -> dict[str, float]:
        names = (
            "pulsar_ml_cache_hits",
            "pulsar_ml_cache_misses",
            "pulsar_ml_ledger_reads",
            "pulsar_out_messages_total",
        )
        samples = [line.rpartition(" ") for line in web.get(f"{cluster.web}/metrics").text.splitlines()]
        return {name: sum(float(value) for each, _, value in samples if each.split("{")[0] == name) for name in names}

    sent: list[bytes] = []
    for more in (40, 360):
        sent += publish(client, topic, more, first=len(sent))
        planned = plan(cluster.options, topic, "bookies")
        before = spent()
        assert values(read(*planned)) == sent
        assert spent() == before
    assert values(read(*plan(cluster.options, topic, "broker"))) == sent
    assert sum(spent().values()) > sum(before.values()), (before, spent())


def test_the_entries_above_the_last_confirmed_one_are_not_read(
    cluster: SmallCluster, client: pulsar.Client, links: Links
):
    topic = f"{WHOLE}/bound"
    sent = publish(client, topic, 12)
    planned = plan(cluster.options, topic, "bookies")
    publish(client, topic, 20, first=12)
    assert values(read(*planned)) == sent


def test_a_ledger_that_is_rolled_between_plan_and_read_is_read(
    cluster: SmallCluster, client: pulsar.Client, links: Links
):
    topic = f"{WHOLE}/rolled"
    sent = publish(client, topic, 12)
    planned = {via: plan(cluster.options, topic, via) for via in VIAS}
    publish(client, topic, 30, first=12)
    for via in VIAS:
        assert values(read(*planned[via])) == sent, via


def test_a_ledger_that_is_deleted_between_plan_and_read_is_data_loss(
    cluster: SmallCluster, client: pulsar.Client, links: Links, monkeypatch: pytest.MonkeyPatch
):
    topic = f"{WHOLE}/deleted"
    sent = publish(client, topic, 40)
    planned = {via: plan(cluster.options, topic, via) for via in VIAS}
    kept = planned["broker"][1][0].ranges[2].ledger_id
    trim_before(cluster, topic, kept)
    forget_entries(monkeypatch)
    for via in VIAS:
        options, tasks = planned[via]
        with pytest.raises(DataLossError, match="are gone"):
            read(options, tasks)
        assert values(read(replace(options, fail_on_data_loss=False), tasks)) == sent[18:], via


def test_a_topic_that_is_deleted_between_plan_and_read_is_an_error(
    cluster: SmallCluster, client: pulsar.Client, links: Links, monkeypatch: pytest.MonkeyPatch
):
    topic = f"{WHOLE}/deleted-topic"
    publish(client, topic, 20)
    planned = {via: plan(cluster.options, topic, via) for via in VIAS}
    ask(cluster, "DELETE", f"{path_of(topic)}?force=true")
    forget_entries(monkeypatch)
    for via in VIAS:
        with pytest.raises((DataLossError, SparkSourceError, ClientError)):
            read(*planned[via])


def test_bookies_out_of_reach_are_the_brokers_turn_and_one_line_in_the_log(
    cluster: SmallCluster, client: pulsar.Client, links: Links, caplog: pytest.LogCaptureFixture
):
    topic = f"{STRIPED}/unreachable"
    sent = publish(client, topic, 40)
    links.lost = cluster.bookies
    with caplog.at_level(logging.WARNING, logger="quire.spark"):
        for _ in range(2):
            assert values(read(*plan(cluster.options, topic, "auto", minPartitions="4"))) == sent
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "bookies cannot be read, entries are read through the broker instead"
    ]
    with pytest.raises(SourceUnavailableError, match=r"cannot be read from its bookies: .*planted.*readVia=auto"):
        read(*plan(cluster.options, topic, "bookies"))


@pytest.mark.parametrize("namespace", [WHOLE, STRIPED])
def test_every_copy_is_tried_until_one_is_whole(
    cluster: SmallCluster, client: pulsar.Client, links: Links, namespace: str
):
    topic = f"{namespace}/copies"
    sent = publish(client, topic, 20)
    planned = plan(cluster.options, topic, "bookies")
    for bookie in planned[1][0].stored[0].metadata.fragments[0].bookies:
        begin(links)
        links.damaged = [bookie]
        assert values(read(*planned)) == sent


def test_a_copy_that_is_damaged_everywhere_is_no_row(cluster: SmallCluster, client: pulsar.Client, links: Links):
    topic = f"{STRIPED}/damaged"
    publish(client, topic, 20)
    links.damaged = cluster.bookies
    with pytest.raises(SourceUnavailableError, match="cannot be read from its bookies"):
        read(*plan(cluster.options, topic, "bookies"))


def test_a_plan_with_old_metadata_finds_the_entries_where_they_are_now(
    cluster: SmallCluster, client: pulsar.Client, links: Links
):
    topic = f"{STRIPED}/moved"
    sent = publish(client, topic, 20)
    options, tasks = plan(cluster.options, topic, "bookies")
    old = [replace(task, stored=tuple(map(elsewhere, task.stored))) for task in tasks]
    assert values(read(options, old)) == sent


def test_reads_beside_a_live_writer_disturb_nothing(tmp_path: Path, links: Links):
    """Source: spark.md 5, done when 4: no roll-over, no failed send, no fence."""
    reads = effort(quick=50, full=1000)
    topic = "persistent://public/default/live"
    with small_cluster(tmp_path, bookies=3, keys={"managedLedgerMaxEntriesPerLedger": 10_000_000}) as own:
        writer = LiveWriter(own.url, topic)
        try:
            wait_until(lambda: writer.confirmed > 0)
            before = state_of(own, topic)
            seen = 0
            for _ in range(reads):
                found = values(
                    read(*plan(own.options, topic, "bookies", startingOffsets=f'{{"live": "{before[0][0]}:{seen}"}}'))
                )
                assert found == [b"%d" % number for number in range(seen, seen + len(found))]
                seen += len(found)
        finally:
            writer.close()
        after = state_of(own, topic)
    assert (seen > 0, writer.failed, writer.confirmed) == (True, 0, writer.sent)
    assert after == before
    assert after[1] == "LedgerOpened"
    assert "state=OPEN" in after[2]
