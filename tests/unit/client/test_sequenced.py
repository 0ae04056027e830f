"""quire/client/deduplicated/sequenced.py, against the fake broker"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from quire.client.client import Client
from quire.client.deduplicated.sequenced import Numbered
from quire.client.packing import pack
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import peek
from tests.support.waiting import until
from tests.unit.client.fake_broker import TOPIC, B, FakeBroker, Session

pytestmark = pytest.mark.seeded


def numbered(*ids: tuple[int, int]) -> list[Numbered]:
    made = []
    for lowest, highest in ids:
        [entry] = pack([b"%d" % lowest] * 2)
        made.append(Numbered(entry.count, entry.size, entry.fields, entry.payload, lowest, highest))
    return made


async def test_entries_carry_the_ids_of_their_caller_on_the_wire_and_in_the_log(client: Client, broker: FakeBroker):
    producer = await client.sequenced_producer(TOPIC, "mine")
    ids = [(1 << 40, (1 << 40) + 7), ((1 << 40) + 8, (1 << 40) + 8), (1 << 62, (1 << 63) - 1)]
    await producer.send_numbered(numbered(*ids[:2]))
    await producer.send_numbered(numbered(ids[2]))
    await producer.flush()
    assert producer.pending == 0
    sends = [each.send for each in broker.of(B.SEND)]
    assert [(each.sequence_id, each.highest_sequence_id) for each in sends] == ids
    assert [each.num_messages for each in sends] == [2, 2, 2]
    seen = [peek(entry) for entry in broker.entries]
    assert [(each.sequence_id, each.highest_sequence_id, each.producer_name) for each in seen] == [
        (*pair, "mine") for pair in ids
    ]
    assert (producer._numbers, producer._sequenced.ids) == ({}, {}), "kept after their receipts"


async def test_after_a_lost_connection_the_same_ids_are_sent_again(client: Client, broker: FakeBroker):
    lost: list[Any] = []

    def lose(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        if len(lost) == 1:  # the second entry
            lost.append(command)
            broker.drop()
            return True
        lost.append(command)
        return False

    broker.on[B.SEND] = lose
    producer = await client.sequenced_producer(TOPIC, "mine")
    ids = [(100, 110), (120, 130), (140, 150)]
    await producer.send_numbered(numbered(*ids))
    await producer.flush()
    stored = [number for name, number in broker.published]
    assert sorted(set(stored)) == [100, 120, 140]
    assert producer.pending == 0


async def test_ids_that_do_not_ascend_are_refused_and_nothing_is_sent(client: Client, broker: FakeBroker):
    producer = await client.sequenced_producer(TOPIC, "mine")
    await producer.send_numbered(numbered((5, 9)))
    for wrong in ([(9, 12)], [(10, 12), (12, 14)], [(20, 19)], [(1, 1 << 63)]):
        with pytest.raises(ValueError, match="do not follow"):
            await producer.send_numbered(numbered(*wrong))
    await producer.flush()
    assert len(broker.of(B.SEND)) == 1
    with pytest.raises(ValueError, match="needs a name"):
        await client.sequenced_producer(TOPIC, "")


async def test_tasks_that_send_at_the_same_time_take_turns(client: Client, broker: FakeBroker):
    producer = await client.sequenced_producer(TOPIC, "mine", pending_max=2)
    ids = [[(turn * 100 + number, turn * 100 + number) for number in range(9)] for turn in (1, 2)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.send_numbered, numbered(*ids[0]))
        await until(lambda: bool(broker.of(B.SEND)))
        nursery.start_soon(producer.send_numbered, numbered(*ids[1]))
    await producer.flush()
    sends = [each.send for each in broker.of(B.SEND)]
    assert [(each.sequence_id, each.highest_sequence_id) for each in sends] == [*ids[0], *ids[1]]


async def test_it_registers_a_schema_as_every_producer_may(client: Client, broker: FakeBroker):
    await client.sequenced_producer(TOPIC, "mine", schema=pb.Schema(name="s", type=pb.Schema.Int32, schema_data=b""))
    (asked,) = broker.of(B.PRODUCER)
    assert asked.producer.schema.type == pb.Schema.Int32
