"""A topic that Pulsar 4.2.4 compacted, read compacted and compacted again by Quire's broker.

The topic `state` has 12 messages of the keys k0 to k3; the last one of k3 is empty. Pulsar's compacted ledger is 20.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.topics.compaction.compaction import RUNNING, SUCCESS, compaction_of
from broker.topics.compaction.leftovers import COMPACTION_CURSOR
from quire.ledger.client import LedgerClient
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from tests.golden.pulsar_files import MOMENTS, entries, ledgers
from tests.golden.served import Served, served
from tests.support.pulsar_frames import U64_MAX
from tests.support.waiting import until
from tests.unit.broker.peers import Peer

STATE = "persistent://public/default/state"
PULSARS = 20


async def reader(room: Served, name: str = "r") -> Peer:
    peer = await room.connect()
    start = pb.MessageIdData(ledgerId=U64_MAX, entryId=U64_MAX)
    await peer.subscribe(STATE, name, durable=False, start_message_id=start, read_compacted=True)
    peer.flow(100)
    return peer


async def read(peer: Peer, count: int) -> list[tuple[int, int, bytes]]:
    found = [await peer.message() for _ in range(count)]
    assert await peer.silent(0.5)
    return [(one.message_id.ledgerId, one.message_id.entryId, payload) for one, payload in found]


async def compacted(topic: Any) -> Any:
    found = compaction_of(topic)
    found.start()
    await until(lambda: found.status != RUNNING)
    assert (found.status, found.error) == (SUCCESS, "")
    return found


@pytest.mark.parametrize("moment", MOMENTS)
async def test_what_pulsar_compacted_is_read_compacted(moment: str) -> None:
    async with served(moment) as room:
        peer = await reader(room)
        assert await read(peer, 3) == [(18, 8, b"v8"), (18, 9, b"v9"), (19, 0, b"v10")]
        assert await peer.last_message_id() == (19, 0, -1)
        await peer.producer(STATE)
        await peer.publish(b"v12", partition_key="k0")
        assert [payload for *_, payload in await read(peer, 1)] == [b"v12"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_next_compaction_builds_on_pulsars_and_deletes_its_ledger(moment: str) -> None:
    async with served(moment) as room:
        peer = await reader(room)
        await read(peer, 3)
        await peer.producer(STATE)
        await peer.publish(b"v12", partition_key="k0")
        await read(peer, 1)
        topic = await room.broker.topics.get(TopicName.parse(STATE))
        view = (await compacted(topic)).view
        assert view.ledger_id != PULSARS
        payloads = [payload for *_, payload in await read(await reader(room, "again"), 3)]
        assert payloads == [b"v9", b"v10", b"v12"]
        assert topic.ledger.cursors[COMPACTION_CURSOR].properties == {"CompactedTopicLedger": view.ledger_id}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_same_log_is_compacted_to_the_same_bytes(moment: str) -> None:
    async with served(moment) as room:
        topic = await room.broker.topics.get(TopicName.parse(STATE))
        assert topic.compaction is not None
        await topic.compaction.drop()
        assert COMPACTION_CURSOR not in topic.ledger.cursors
        view = (await compacted(topic)).view
        client = cast(LedgerClient, topic.ledger.cursor_services.ledgers)
        found = await client.open(view.ledger_id, recover=False)
        assert [bytes(each) for each in await found.read(0, found.last_entry_id, size_max=1 << 20)] == entries(moment)[
            PULSARS
        ]
        metadata = await client.read_metadata(view.ledger_id)
        told = ledgers(moment)[PULSARS]
        assert metadata.digest_type.name == told["digest"]
        assert {name: text(value) for name, value in metadata.custom_metadata} == told["customMetadata"]


def text(value: bytes) -> str:
    """Return a value as the golden files write it."""
    return value.decode() if value.isascii() and value.decode().isprintable() else f"hex:{value.hex()}"
