"""A network that cuts, changes and resets, between processes: a broker, four bookies, official clients. docs/faults.md
has the list.

Broker and bookies listen on 127.0.0.1 and are announced at 127.0.0.2, where a link to each may be cut.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pulsar
import pytest

from quire.client.deliveries import Deliveries
from quire.client.unpacking import Messages, Opener
from quire.ledger import LedgerClient, open_client
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.real import real_world
from tests.support.bad_links import FAR, BadLink, bad_links
from tests.support.bookies import sees
from tests.support.broker_process import BrokerCluster, BrokerProcess, client_of
from tests.support.process import wait_until
from tests.support.raw import RawClient
from tests.support.traffic import traffic
from tests.support.zookeeper import shared_server, until

pytestmark = pytest.mark.cluster

BOOKIES = 4
ANSWER_S = 2
"""Seconds without an answer after which a bookie counts as failed."""
WATCHED_S = 2 * ANSWER_S
"""Seconds for which the absence of receipts is observed."""
MARK = b"<change me>"


class Scene:
    def __init__(self, cluster: BrokerCluster, broker: BrokerProcess, links: list[BadLink]) -> None:
        self.cluster = cluster
        self.broker = broker
        self.bookies = links[:BOOKIES]
        self.front = links[BOOKIES]
        """Link between clients and the broker."""
        self.more: list[BadLink] = []
        """Links of single tests; they are closed with the others."""

    def ensemble(self, topic: str) -> list[int]:
        """Return the numbers of the bookies of the topic's current ledger."""
        path = topic.replace("persistent://", "/admin/v2/persistent/")
        found = self.broker.ask("GET", f"{path}/internalStats?metadata=true").json()["ledgers"][-1]["metadata"]
        members = re.findall(r"\[([^\[\]]*)\]", found)[-1]
        numbers = [number for number, bookie in enumerate(self.cluster.bookies) if bookie.id in members]
        assert len(numbers) == 3, found
        return numbers


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    cluster = BrokerCluster(tmp_path_factory.mktemp("cluster"), shared_server(), bookies=BOOKIES)
    for bookie in cluster.bookies:
        # Known by its id, wherever it is.
        bookie.settings |= {"bookieId": bookie.id, "listeningInterface": "lo", "advertisedAddress": FAR}
    broker = cluster.broker(bookkeeperClientTimeoutInSeconds=ANSWER_S, advertisedAddress=FAR)
    broker.id, broker.url, broker.web = (text.replace("127.0.0.1", FAR) for text in (broker.id, broker.url, broker.web))
    with bad_links(*(each.port for each in cluster.bookies), broker.port, broker.web_port) as links:
        made = Scene(cluster, broker, links)
        try:
            cluster.start_bookies()
            broker.start()
            yield made
        finally:
            cluster.end()
            for link in made.more:
                link.close()
    broker.check_log()


@pytest.fixture
def scene(shared: Scene) -> Iterator[Scene]:
    """Return the shared scene; every link that a test cuts is restored afterwards."""
    yield shared
    for link in (*shared.bookies, shared.front):
        link.change = lambda data: data
        link.heal()


@asynccontextmanager
async def with_ledgers(scene: Scene) -> AsyncIterator[LedgerClient]:
    async with open_client(real_world(), scene.cluster.ledgers_uri) as client:
        await until(partial(sees, client, BOOKIES), "all bookies are seen")
        yield client


@pytest.mark.parametrize(
    "way", ["requests", *(pytest.param(each, marks=pytest.mark.full) for each in ("both", "answers"))]
)
def test_n1_n5_a_broker_cut_from_one_bookie_goes_on_and_cut_from_three_waits_and_acknowledges_nothing(
    scene: Scene, way: str
) -> None:
    """The link is cut in both directions or in one.

    If only requests are held, the bookie is a peer that accepts connections and never reads: the window is zero.
    """
    topic = f"persistent://public/default/cut-{way}"
    gates = {"both": {}, "requests": {"answers": False}, "answers": {"requests": False}}[way]
    with client_of(scene.broker) as client, traffic(client, topic) as running:
        first, *others = scene.ensemble(topic)
        scene.bookies[first].cut(**gates)
        running.wait_for_more(100)
        wait_until(lambda: first not in scene.ensemble(topic), "the bookie is replaced")
        running.wait_for_more(100)
        for number in others:
            scene.bookies[number].cut(**gates)
        count = len(running.sent)
        # The one message that was on its way; then no ack quorum is left.
        time.sleep(WATCHED_S)
        assert len(running.sent) <= count + 1
        assert not running.errors
        for link in scene.bookies:
            link.heal()
        running.wait_for_more(20, seconds=60)


def test_n4_connections_that_are_reset_again_and_again_cost_no_message_and_no_order(scene: Scene) -> None:
    """The connections of clients and those of bookies are reset."""
    topic = "persistent://public/default/resets"
    with client_of(scene.broker) as client, traffic(client, topic) as running:
        for number in range(6):
            running.wait_for_more(15, seconds=60)
            (scene.front if number % 2 else scene.bookies[scene.ensemble(topic)[0]]).reset()


def test_n7_a_message_that_changed_on_its_way_to_the_broker_is_refused_and_told(scene: Scene) -> None:
    topic = "persistent://public/default/changed"
    with client_of(scene.broker) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, batching_enabled=False)
        sent = [b"%d %s" % (number, MARK) for number in range(10)]
        for number, payload in enumerate(sent):
            if number % 3 == 0:
                scene.front.change = lambda data: data.replace(MARK, MARK.swapcase())
                with pytest.raises(pulsar.ChecksumError):
                    producer.send(payload)
                scene.front.change = lambda data: data
            producer.send(payload)
        received: list[bytes] = []
        while len(received) < len(sent):
            message = consumer.receive(20_000)
            received.append(message.data())
            consumer.acknowledge(message)
        assert received == sent


@pytest.mark.real_clock
async def test_n7_a_copy_that_changed_on_its_way_to_a_bookie_is_never_read(scene: Scene) -> None:
    """The bookie stores it, because it does not have the digest's key. Readers have the key."""
    async with with_ledgers(scene) as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        victim = (await client.read_metadata(writer.ledger_id)).fragments[0].bookies[0]
        bookie = next(each for each in scene.cluster.bookies if each.id == victim)
        link = scene.bookies[scene.cluster.bookies.index(bookie)]
        link.change = lambda data: data.replace(MARK, MARK.swapcase())
        sent = [b"%d %s" % (number, MARK) for number in range(9)]
        for number, payload in enumerate(sent):
            writer.append([payload])
            await writer.wait_confirmed(number)
        await writer.close()
        wire = bookie.connect()
        for number in range(9):
            rc, entry = wire.read(writer.ledger_id, number)
            assert rc == Rc.OK
            assert entry.endswith(b"%d %s" % (number, MARK.swapcase())), "it has what it was sent"
        reader = await client.open(writer.ledger_id, recover=False)
        # One by one: each of the three is the first to be asked for a third of them.
        assert [bytes(each) for number in range(9) for each in await reader.read(number, number)] == sent
        reader.close()


@pytest.mark.real_clock
async def test_n8_a_bookie_at_a_new_address_is_found_by_its_id_and_has_what_it_had(scene: Scene) -> None:
    """This holds for clients that were open before and for later ones, and no entry is copied."""
    topic = "persistent://public/default/moved-bookie"
    new_address = "127.0.0.3"
    bookie = scene.cluster.bookies[0]
    sent = [b"%d" % number for number in range(2 * BOOKIES)]
    async with with_ledgers(scene) as ledgers:
        # It is a member for certain, and of a fourth of the entries the only one.
        writer = await ledgers.create(ensemble_size=BOOKIES, write_quorum=1, ack_quorum=1)
        writer.append(sent)
        await writer.wait_confirmed(len(sent) - 1)
        await writer.close()
        before = await ledgers.read_metadata(writer.ledger_id)
    link = scene.bookies[0] = BadLink(bookie.port, new_address)
    scene.more.append(link)
    with client_of(scene.broker) as client, traffic(client, topic) as running:
        assert bookie.stop() == 0
        bookie.settings["advertisedAddress"] = new_address
        bookie.start()
        running.wait_for_more(20, seconds=60)
    async with with_ledgers(scene) as ledgers:
        assert await ledgers.read_metadata(writer.ledger_id) == before
        passed = link.passed
        reader = await ledgers.open(writer.ledger_id, recover=False)
        assert [bytes(each) for number in range(len(sent)) for each in await reader.read(number, number)] == sent
        assert link.passed > passed, "it is asked at its new address"
        reader.close()


def test_n10_large_messages_and_chunks_cut_in_their_middle_are_stored_whole(scene: Scene) -> None:
    """A consumer with the rules of the official ones receives each message whole and in order, and no part of one.

    (If a producer had to send again, official consumers skip a chunk that arrived twice and the chunks behind it; the
    test's consumer does not.)

    """
    topic = "persistent://public/default/large"
    sizes = [4 << 20, 11 << 20, 4 << 20, 11 << 20]
    sent = [hashlib.sha256(b"%d" % number).digest() * (size // 32) for number, size in enumerate(sizes)]
    with client_of(scene.broker, timeout_s=60) as client:
        producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True, send_timeout_millis=0)
        begun, resets = scene.front.passed, 0
        cuts = [1 << 20, 7 << 20, 16 << 20, 28 << 20]

        def change(data: bytes) -> bytes:
            nonlocal resets
            if resets < len(cuts) and scene.front.passed - begun > cuts[resets]:
                resets += 1
                scene.front.reset()
            return data

        scene.front.change = change
        for payload in sent:
            producer.send(payload)
        assert resets == len(cuts)
        last = client.create_producer(topic, batching_enabled=False)
        last.send(b"the end")
    entries = Deliveries()
    with RawClient(scene.broker.port) as raw:
        raw.subscribe(topic, "raw")
        raw.flow(1000)
        while not entries.entries or not bytes(entries.entries[-1]).endswith(b"the end"):
            command, entry = raw.receive_frame()
            if command.type == pb.BaseCommand.MESSAGE:
                entries.ledger_ids.append(command.message.message_id.ledgerId)
                entries.entry_ids.append(command.message.message_id.entryId)
                entries.entries.append(entry)
    found = Messages()
    assert Opener().open(entries, found) == []
    # One that was sent again after its receipt was lost may be there twice.
    assert list(dict.fromkeys(found.values)) == [*sent, b"the end"]
