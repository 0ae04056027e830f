"""Topics of the servers are compacted and trimmed, and say the same to every reader (change_log, due, known, local,
remote)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import trio

from broker.ownership.values import Json
from broker.topics.compaction.compaction import SUCCESS, compaction_of
from broker.topics.compaction.due import compact_if_due
from broker.topics.topic import Topic
from broker.topics.topic_policies.change_log import ChangeLog
from broker.transactions.buffer_state import Snapshot
from broker.transactions.snapshots.formats import snapshot_message
from broker.transactions.snapshots.local import LocalSnapshots
from broker.transactions.snapshots.remote import RemoteSnapshots
from managed_ledger.config import LogConfigSource
from quire.client.client import Client
from quire.ledger.position import Position
from quire.wire.pulsar.names import TopicName
from tests.support.waiting import until
from tests.unit.broker.peers import Room, in_broker
from tests.unit.managed_ledger.fake_ledgers import Sink

NAME = TopicName.parse("persistent://public/default/orders")
OTHER = TopicName.parse("persistent://public/default/other")
EVENTS = TopicName.parse("persistent://public/default/__change_events")
SNAPSHOTS = TopicName.parse("persistent://public/default/__transaction_buffer_snapshot")


async def asked(name: str) -> LogConfigSource:
    raise AssertionError(f"{name} is opened with the policies that its caller has")


SMALL: dict[str, Any] = {"entries_max": 2, "config_of": asked}
"""Logs of small ledgers, to which policies apply, as in a server."""


def with_ttl(seconds: int) -> Callable[[Json], Json]:
    return lambda own: {**own, "messageTTLInSeconds": seconds}


async def ttl(room: Room, name: TopicName) -> int | None:
    return (await room.broker.policies.get(name) or {}).get("messageTTLInSeconds")


async def compacted(topic: Topic) -> None:
    """Compact a topic as the monitor does, and wait until what is compacted is trimmed."""
    assert len(topic.ledger.ledgers) > 2
    compact_if_due(topic)
    await until(lambda: compaction_of(topic).status == SUCCESS)
    await until(lambda: len(topic.ledger.ledgers) <= 2)


async def test_events_are_compacted_and_trimmed_and_mean_the_same() -> None:
    async with in_broker(log=SMALL, system_compaction_threshold_bytes=1) as room:
        await room.broker.policies.update(OTHER, with_ttl(1))
        topic = await room.broker.topics.get(EVENTS)
        assert topic.policies is not None
        assert topic.policies().retention_minutes == -1  # nothing keeps its ledgers but that
        late = ChangeLog(topic, room.broker.topics.schemas)
        await late.read_on()
        before = late.read_to
        for seconds in range(2, 9):
            await room.broker.policies.update(NAME, with_ttl(seconds))
        await room.broker.policies.delete(OTHER)
        await compacted(topic)
        assert topic.policies().retention_minutes == 0
        assert (await ttl(room, NAME), await ttl(room, OTHER)) == (8, None)
        # One that has read nothing since: the events are gone, and among them the one that deleted a topic's policies.
        await late.read_on()
        assert ((late.fields(NAME.full) or {})["messageTTLInSeconds"], late.fields(OTHER.full)) == (8, None)
        assert late.changes(before).whole
        new = ChangeLog(topic, room.broker.topics.schemas)
        await new.read_on()
        assert new.fields(NAME.full) == late.fields(NAME.full)
        # And on.
        await room.broker.policies.update(NAME, with_ttl(9))
        await late.read_on()
        assert (late.fields(NAME.full) or {})["messageTTLInSeconds"] == 9
        assert not late.changes(new.read_to).whole


async def test_what_was_known_counts_until_a_compacted_log_is_read() -> None:
    async with in_broker(log=SMALL, system_compaction_threshold_bytes=1) as room:
        await room.broker.policies.update(NAME, with_ttl(1))
        topic = await room.broker.topics.get(EVENTS)
        late = ChangeLog(topic, room.broker.topics.schemas)
        await late.read_on()
        for seconds in range(2, 9):
            await room.broker.policies.update(NAME, with_ttl(seconds))
        await compacted(topic)
        seen: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(late.read_on)
            for _ in range(30):
                await trio.lowlevel.checkpoint()
                seen.append((late.fields(NAME.full) or {"messageTTLInSeconds": -1})["messageTTLInSeconds"])
        assert set(seen) == {1, 8}


async def test_the_threshold_is_the_policies_else_the_broker_s_else_that_of_topics_of_the_servers() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"system_compaction_threshold_bytes": 0}, False),
        ({"system_compaction_threshold_bytes": 1 << 20}, False),
        ({"system_compaction_threshold_bytes": 10}, True),
        ({"system_compaction_threshold_bytes": 10, "compaction_threshold_bytes": 1 << 20}, False),
        ({"system_compaction_threshold_bytes": 0, "compaction_threshold_bytes": 10}, True),
    ]
    for options, wanted in cases:
        async with in_broker(log=SMALL, **options) as room:
            await room.broker.policies.update(NAME, with_ttl(1))
            topic = await room.broker.topics.get(EVENTS)
            compact_if_due(topic)
            assert (topic.compaction is not None) == wanted, options


async def store(topic: Topic, name: TopicName, snapshot: Snapshot | None) -> None:
    sink = Sink()
    topic.ledger.append([snapshot_message(name, snapshot, b"").encode("p", 1, 1)], sink)
    await until(lambda: bool(sink.calls))


async def test_a_reader_of_snapshots_forgets_what_was_deleted_and_compacted_away() -> None:
    async with in_broker(log=SMALL, system_compaction_threshold_bytes=1) as room:
        await room.broker.topics.create(SNAPSHOTS)
        topic = await room.broker.topics.get(SNAPSHOTS)
        late = LocalSnapshots(topic)
        await store(topic, OTHER, Snapshot(Position(0, 1), {}, {}))
        assert await late.last(OTHER.full) is not None
        await store(topic, OTHER, None)
        for entry_id in range(5):
            await store(topic, NAME, Snapshot(Position(0, entry_id), {}, {}))
        await compacted(topic)
        assert await late.last(OTHER.full) is None
        assert await late.last(NAME.full) == await LocalSnapshots(topic).last(NAME.full) is not None


class Readers:
    """A client whose readers find these messages."""

    def __init__(self, messages: dict[tuple[int, int], bytes]) -> None:
        self.messages = messages
        self.on_reader: list[Callable[[], None]] = []
        """Called when the next readers are made, one each."""

    async def reader(self, topic: str, start: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        at = (start.ledger_id, start.entry_id)
        if self.on_reader:
            self.on_reader.pop(0)()

        async def last_message_id() -> Any:
            await trio.lowlevel.checkpoint()
            ledger_id, entry_id = max(self.messages, default=(-1, -1))
            return SimpleNamespace(ledger_id=ledger_id, entry_id=entry_id)

        async def receive() -> Any:
            await trio.lowlevel.checkpoint()
            found = [place for place in sorted(self.messages) if place >= at]
            assert found, "a reader that waits for ever"
            ledger_ids, entry_ids = [place[0] for place in found], [place[1] for place in found]
            entries = [self.messages[place] for place in found]
            return SimpleNamespace(ledger_ids=ledger_ids, entry_ids=entry_ids, entries=entries)

        async def close() -> None:
            await trio.lowlevel.checkpoint()

        return SimpleNamespace(last_message_id=last_message_id, receive=receive, close=close)


async def test_a_reader_of_snapshots_elsewhere_reads_all_again_when_a_message_is_compacted_away() -> None:
    def message(name: TopicName, entry_id: int) -> bytes:
        return snapshot_message(name, Snapshot(Position(0, entry_id), {}, {}), b"").encode("p", 1, 1)

    there = Readers({(0, 0): message(NAME, 1), (0, 1): message(OTHER, 2)})
    snapshots = RemoteSnapshots(SNAPSHOTS, cast(Client, there))
    assert await snapshots.last(OTHER.full) is not None
    # It was deleted by a message at (0, 2), which is compacted away too.
    del there.messages[0, 1]
    assert await snapshots.last(OTHER.full) is None
    there.messages[0, 3] = message(NAME, 3)
    del there.messages[0, 0]
    assert await snapshots.last(NAME.full) is not None
    assert await snapshots.last(OTHER.full) is None

    # There is a newer one by the time at which it is read.
    def replace() -> None:
        del there.messages[0, 3]
        there.messages[0, 4] = message(NAME, 4)

    there.on_reader = [lambda: None, replace]
    assert await snapshots.last(NAME.full) is not None
