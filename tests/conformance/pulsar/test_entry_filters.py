"""Entry filters of a server's configuration, as official consumers see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.admin_rest import Admin
from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess, standalone

RECEIVE_MS = 10_000
FILTER = """
from broker.entry_filters import EntryFilter, FilteredEntry, FilterResult


class ByProperty(EntryFilter):
    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        wanted = entry.consumer_properties.get("colour")
        if wanted is None:
            return FilterResult.ACCEPT
        if any(pair.key == "colour" and pair.value == wanted for pair in entry.metadata.properties):
            return FilterResult.ACCEPT
        return FilterResult.REJECT
"""


@pytest.fixture(scope="module")
def filtering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("filtering")
    filters = folder / "filters"
    filters.mkdir()
    (filters / "by_colour.py").write_text(FILTER)
    with standalone(folder, {"entryFiltersDirectory": filters, "entryFilterNames": "by_colour"}) as running:
        yield running


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "KeyShared"])
def test_consumers_get_what_the_filters_of_the_broker_accept(filtering: StandaloneProcess, kind: str) -> None:
    topic = f"persistent://public/default/{kind}"
    client = pulsar.Client(filtering.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        of_kind = getattr(pulsar.ConsumerType, kind)
        consumer = client.subscribe(topic, "red", of_kind, properties={"colour": "red"}, receiver_queue_size=3)
        everything = client.subscribe(topic, "all", of_kind)
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(40):
            producer.send(b"%d" % number, properties={"colour": "red" if number % 4 == 3 else "blue"})
        got = []
        for _ in range(10):
            message = consumer.receive(RECEIVE_MS)
            got.append(bytes(message.data()))
            consumer.acknowledge(message)
        assert got == [b"%d" % number for number in range(3, 40, 4)]
        assert [bytes(everything.receive(RECEIVE_MS).data()) for _ in range(40)] == [b"%d" % n for n in range(40)]
        refuses(pulsar.Timeout, lambda: consumer.receive(300))
        admin = Admin(filtering)
        with admin.http:
            stats = admin.get(topic, "/stats")["subscriptions"]["red"]
            assert stats["msgBacklog"] == 0
            assert stats["filterAcceptedMsgCount"] == 10
            assert stats["filterRejectedMsgCount"] == 30
            assert stats["consumers"][0]["metadata"] == {"colour": "red"}
            analyzed = admin.ask("POST", topic, "/subscription/all/analyzeBacklog").json()
            assert (analyzed["filterAcceptedMessages"], analyzed["filterRejectedMessages"]) == (40, 0)
    finally:
        client.close()


def test_a_server_with_a_filter_that_is_not_there_does_not_start(tmp_path: Path) -> None:
    server = StandaloneProcess(tmp_path, {"entryFiltersDirectory": tmp_path, "entryFilterNames": "nix"})
    refuses(AssertionError, lambda: server.start())
    server.kill()
    assert "entryFilterNames: filter 'nix'" in server.log()
