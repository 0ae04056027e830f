"""Entry filters on subscriptions of all types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.dispatch import limited
from broker.entry_filters import EntryFilter, FilteredEntry, FilterResult
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.waiting import until
from tests.unit.broker.fakes import LEDGER, Stage, counts, delivered, on_stage
from tests.unit.broker.peers import in_broker

EXCLUSIVE = pb.CommandSubscribe.Exclusive
FAILOVER = pb.CommandSubscribe.Failover
SHARED = pb.CommandSubscribe.Shared
KEY_SHARED = pb.CommandSubscribe.Key_Shared

ACCEPT, REJECT, RESCHEDULE = FilterResult
Choice = Callable[[FilteredEntry], FilterResult]

each_kind = pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
each_shared = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])


class By(EntryFilter):
    """A filter that decides by a function."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.asked: list[FilteredEntry] = []

    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        self.asked.append(entry)
        return self.choice(entry)


def with_filters(stage: Stage, *choices: Choice) -> list[By]:
    filters = [By(choice) for choice in choices]
    stage.subscription.rules = stage.subscription.rules._replace(filters=tuple(filters))
    return filters


def odd(entry: FilteredEntry) -> FilterResult:
    return ACCEPT if entry.entry_id % 2 else REJECT


def numbers(*of: int) -> list[bytes]:
    return [b"%d" % number for number in of]


@each_kind
async def test_what_is_rejected_is_acknowledged_and_costs_no_permits(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join()
        with_filters(stage, odd)
        stage.publish(*numbers(*range(100)))
        stage.subscription.flow(consumer, 20)
        assert delivered(consumer) == numbers(*range(1, 40, 2))
        assert all(stage.subscription.cursor.is_acked(Position(LEDGER, number)) for number in range(0, 40, 2))
        assert stage.subscription.permits_of(consumer) == 0
        stage.subscription.flow(consumer, 1000)
        assert delivered(consumer) == numbers(*range(41, 100, 2))
        found = stage.subscription.filtered
        assert (found.accepted, found.rescheduled) == (50, 0)
        assert found.rejected == 50
        assert found.processed == found.accepted + found.rejected
        held = [Position(LEDGER, number) for number in range(1, 100, 2)]
        stage.subscription.ack_individual(consumer, held, [])
        assert stage.subscription.cursor.backlog() == 0
        assert stage.subscription.unacked_of(consumer) == 0


@each_kind
async def test_the_first_filter_that_does_not_accept_decides(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join("name")
        consumer.properties = {"region": "eu"}
        first, second = with_filters(stage, odd, lambda entry: REJECT if entry.entry_id == 3 else ACCEPT)
        stage.publish(b"0", b"1", b"2", b"3", b"4", b"5", partition_key="k")
        stage.subscription.flow(consumer, 6)
        assert delivered(consumer) == [b"1", b"5"]
        assert [each.entry_id for each in first.asked] == [0, 1, 2, 3, 4, 5]
        assert [each.entry_id for each in second.asked] == [1, 3, 5]
        seen = second.asked[0]
        assert (seen.topic, seen.subscription) == ("persistent://public/default/orders", "s")
        assert (seen.consumer, seen.consumer_properties) == ("name", {"region": "eu"})
        assert (seen.metadata.partition_key, bytes(seen.payload)) == ("k", b"1")


@each_shared
async def test_what_is_rescheduled_comes_again_after_the_delay_and_is_counted(
    kind: pb.CommandSubscribe.SubType,
) -> None:
    async with on_stage(kind, filter_reschedule_delay_s=2.0) as stage:
        consumer = stage.join()
        ready = False
        with_filters(stage, lambda entry: ACCEPT if ready or entry.entry_id != 1 else RESCHEDULE)
        stage.publish(b"0", b"1", b"2")
        stage.subscription.flow(consumer, 5)
        assert delivered(consumer) == [b"0", b"2"]
        assert stage.subscription.permits_of(consumer) == 3
        assert stage.subscription.unacked_of(consumer) == 3
        await trio.sleep(1.9)
        assert delivered(consumer) == []
        await trio.sleep(0.2)
        assert delivered(consumer) == []
        assert stage.subscription.filtered.rescheduled == 2
        ready = True
        await trio.sleep(2)
        assert counts(consumer) == [(b"1", 2)]
        assert stage.subscription.unacked_of(consumer) == 3


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_an_ordered_subscription_waits_for_what_is_rescheduled(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind, filter_reschedule_delay_s=2.0) as stage:
        consumer = stage.join()
        ready = False
        with_filters(stage, lambda entry: ACCEPT if ready or entry.entry_id != 1 else RESCHEDULE)
        stage.publish(b"0", b"1", b"2")
        stage.subscription.flow(consumer, 5)
        assert delivered(consumer) == [b"0"]
        await trio.sleep(3)
        assert delivered(consumer) == []
        ready = True
        await trio.sleep(2)
        assert delivered(consumer) == [b"1", b"2"]


async def test_a_rescheduled_entry_may_go_to_another_consumer() -> None:
    async with on_stage(SHARED, filter_reschedule_delay_s=1.0) as stage:
        one, other = stage.join("one"), stage.join("other")
        with_filters(stage, lambda entry: ACCEPT if entry.consumer == "other" else RESCHEDULE)
        stage.subscription.flow(one, 1)
        stage.publish(b"0")
        assert delivered(one) == delivered(other) == []
        stage.subscription.flow(other, 1)
        stage.subscription.remove_consumer(one)
        assert delivered(other) == [b"0"]
        await trio.sleep(3)
        assert delivered(other) == []


@pytest.mark.expect_error("entry filter failed")
@each_kind
async def test_a_filter_that_fails_delivers_nothing_and_loses_nothing(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind, filter_reschedule_delay_s=1.0) as stage:
        consumer = stage.join()
        broken = True

        def choice(entry: FilteredEntry) -> Any:
            if broken:
                raise ValueError("broken")
            return ACCEPT

        with_filters(stage, choice)
        stage.publish(b"0", b"1")
        stage.subscription.flow(consumer, 5)
        assert delivered(consumer) == []
        broken = False
        await trio.sleep(1.5)
        assert sorted(delivered(consumer)) == [b"0", b"1"]


@pytest.mark.expect_error("entry filter failed")
@each_kind
async def test_a_result_that_is_none_counts_as_a_failure(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join()

        def nothing(entry: FilteredEntry) -> Any:
            return None

        with_filters(stage, nothing)
        stage.publish(b"0")
        stage.subscription.flow(consumer, 5)
        assert delivered(consumer) == []
        assert stage.subscription.filtered.rescheduled == 1


@each_shared
async def test_what_waits_after_filters_is_bounded(
    kind: pb.CommandSubscribe.SubType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "RESCHEDULED_MAX", 50)
    async with on_stage(kind, filter_reschedule_delay_s=1.0) as stage:
        consumer = stage.join()
        [asked] = with_filters(stage, lambda entry: RESCHEDULE)
        stage.publish(*numbers(*range(500)))
        stage.subscription.flow(consumer, 20)
        assert delivered(consumer) == []
        assert 50 <= stage.subscription._rescheduled_count < 100
        asked.choice = lambda entry: ACCEPT
        stage.subscription.flow(consumer, 1000)
        got = 0
        for _ in range(40):
            await trio.sleep(0.1)
            got += len(delivered(consumer))
        assert got == 500
        assert stage.subscription._rescheduled_count == 0
        await until(lambda: stage.subscription._rescheduled is None)


async def test_a_key_whose_entries_are_rejected_is_held_by_no_consumer() -> None:
    async with on_stage(KEY_SHARED) as stage:
        consumer = stage.join("one")
        with_filters(stage, lambda entry: REJECT)
        stage.publish(*numbers(*range(30)), partition_key="k")
        stage.subscription.flow(consumer, 100)
        assert delivered(consumer) == []
        assert stage.subscription._policy._holders == {}
        assert stage.subscription.cursor.backlog() == 0


FILE = """
from broker.entry_filters import EntryFilter, FilteredEntry, FilterResult

class Nothing(EntryFilter):
    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        return FilterResult.REJECT
"""


async def test_subscriptions_follow_the_policies_of_their_namespace_and_topic(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(FILE)
    async with in_broker(entry_filters_directory=str(tmp_path), allow_override_entry_filters=True) as room:
        peer = await room.connect()
        await peer.subscribe(subType=SHARED)
        await peer.producer()
        peer.flow(100)
        topic = await room.topic()
        [subscription] = topic.subscriptions.values()

        async def policies(**said: Any) -> None:
            rules = subscription.rules
            await room.broker.policies.update(topic.name, lambda _: said)
            await until(lambda: subscription.rules is not rules)

        await policies(maxUnackedMessagesOnConsumer=2)
        ids = await peer.publish(b"0", b"1")
        assert await peer.payloads(2) == [b"0", b"1"]
        ids += await peer.publish(b"2", first=2)
        assert await peer.silent()
        await policies(maxUnackedMessagesOnConsumer=50)
        assert await peer.payloads(1) == [b"2"]
        peer.ack(*ids)
        await policies(entryFilters={"entryFilterNames": "nothing"})
        await peer.publish(b"3", first=3)
        assert await peer.silent()
        assert subscription.backlog == 0
        await policies(entryFilters={"entryFilterNames": "nix"})
        await peer.expect(pb.BaseCommand.CLOSE_CONSUMER)
        peer.ask_subscribe(consumer_id=2, subType=SHARED)
        code, why = await peer.error()
        assert code == pb.NotAllowedError
        assert "'nix' is not in entryFiltersDirectory" in why
        await policies(entryFilters=None)
        await peer.subscribe(consumer_id=3, subType=SHARED)
