"""Decisions of the driver side and the order of its requests: offsets, the hold, restarts, missing entries."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from quire.client.errors import ServiceUnavailableError
from quire.client.message_id import MessageId
from quire.client.packing import pack
from quire.spark import cluster as cluster_module
from quire.spark.admin import Admin, TopicMissingError
from quire.spark.errors import DataLossError, OptionError, SourceUnavailableError
from quire.spark.limits import Limits
from quire.spark.offsets import Offsets, Place
from quire.spark.options.parse import Options
from quire.spark.options.table import Use
from quire.spark.planning.logs import LedgerRange
from quire.spark.planning.planner import Planner
from tests.unit.spark.fake_cluster import FakeTopics

TOPIC = "persistent://public/default/x"
OTHER = "persistent://public/default/y"
NO_LIMIT = Limits()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeTopics:
    made = FakeTopics()
    made.add(TOPIC, (3, 10), (5, 4))
    monkeypatch.setattr(cluster_module, "runtime", made)
    return made


def planner(cluster: FakeTopics, use: Use = "stream", **changed: str) -> Planner:
    asked = {"topic": TOPIC, **changed}
    if use == "stream":
        asked.setdefault("startingOffsets", "earliest")
        if "hold" not in changed:
            asked.setdefault("subscription", "hold")
    asked.setdefault("topicsRefreshMs", "0")
    asked = {name: value for name, value in asked.items() if value}
    return Planner(Options.parse(asked, use=use), admin=cast(Admin, cluster))


def offsets(*place: int, topic: str = TOPIC) -> Offsets:
    return Offsets({topic: Place(*place)})


def asked(cluster: FakeTopics, *kinds: str) -> list[tuple[Any, ...]]:
    return [call for call in cluster.calls if call[0] in kinds]


# The first offset


def test_the_hold_is_there_before_the_first_offset_is_returned(cluster: FakeTopics):
    made = planner(cluster)
    assert made.initial() == offsets(3, 0)
    assert asked(cluster, "create", "attach") == [("create", TOPIC, "hold", (3, 0)), ("attach", TOPIC, "hold")]
    assert cluster.marks[TOPIC, "hold"] == (3, -1)


def test_the_first_offset_is_looked_up_once_although_it_is_asked_for_twice(cluster: FakeTopics):
    made = planner(cluster, startingOffsets="latest")
    first = made.initial()
    cluster.grow(TOPIC, 3)
    assert made.initial() is first
    assert first == offsets(5, 4)
    assert len(asked(cluster, "create")) == 1


def test_what_goes_between_the_look_and_the_hold_is_looked_up_again(cluster: FakeTopics):
    def once(topic: str) -> None:
        cluster.on_create = lambda _topic: None
        cluster.trim(topic)

    cluster.on_create = once
    made = planner(cluster)
    assert made.initial() == offsets(5, 0)
    assert made.plan(offsets(5, 0), offsets(5, 4))[0].ranges == (LedgerRange(5, 0, 3),)


def test_a_first_offset_whose_data_is_gone_is_data_loss_and_leaves_no_subscription(cluster: FakeTopics):
    given = f'{{"{TOPIC}": "2:7"}}'
    with pytest.raises(DataLossError, match=rf"{TOPIC}: .*2:7.*failOnDataLoss"):
        planner(cluster, startingOffsets=given).initial()
    assert cluster.marks == {}
    with pytest.raises(DataLossError, match="2:7"):
        planner(cluster, startingOffsets=given, hold="none").initial()
    assert planner(cluster, startingOffsets=given, failOnDataLoss="false").initial() == offsets(2, 7)


def test_a_time_is_looked_up_at_the_broker(cluster: FakeTopics):
    cluster.times[1234] = MessageId(3, 6)
    made = planner(cluster, startingOffsets="", startingTimestamp="1234")
    assert made.initial() == offsets(3, 6)


def test_a_topic_that_does_not_exist_is_named(cluster: FakeTopics):
    with pytest.raises(TopicMissingError, match=f"topic {OTHER} does not exist"):
        planner(cluster, topic=OTHER).initial()
    cluster.unknown.add(OTHER)
    with pytest.raises(TopicMissingError, match=f"topic {OTHER} does not exist"):
        planner(cluster, topic=OTHER).initial()


def test_a_partition_without_a_place_is_named(cluster: FakeTopics):
    cluster.partition_counts[TOPIC] = 2
    cluster.add(f"{TOPIC}-partition-0", (1, 5))
    cluster.add(f"{TOPIC}-partition-1", (2, 5))
    with pytest.raises(OptionError, match=r"no place for .*x-partition-1"):
        planner(cluster, startingOffsets=f'{{"{TOPIC}-partition-0": -2}}').initial()


def test_a_subscription_that_stands_behind_the_start_of_a_new_query_is_taken_back(
    cluster: FakeTopics, caplog: pytest.LogCaptureFixture
):
    cluster.marks[TOPIC, "hold"] = (5, 1)
    with caplog.at_level(logging.WARNING):
        planner(cluster).initial()
    assert asked(cluster, "seek") == [("seek", TOPIC, (3, 0))]
    assert "was behind the start" in caplog.text


def test_a_subscription_that_stands_before_the_start_is_left_there(cluster: FakeTopics):
    cluster.marks[TOPIC, "hold"] = (3, 4)
    planner(cluster, startingOffsets="latest").initial()
    assert asked(cluster, "seek", "ack") == []
    assert cluster.marks[TOPIC, "hold"] == (3, 4)


def test_a_ledger_that_was_read_to_its_end_may_go_before_the_first_trigger(cluster: FakeTopics):
    made = planner(cluster, startingOffsets="latest")
    start = made.initial()
    cluster.roll(TOPIC, 8)
    cluster.trim(TOPIC)
    assert made.latest(start, NO_LIMIT) == start
    cluster.grow(TOPIC, 2)
    assert made.latest(start, NO_LIMIT) == offsets(8, 2)


# Restarts: the first call is another one


@pytest.mark.parametrize("first", ["plan", "latest"])
def test_the_hold_is_attached_in_the_first_call_whatever_it_is(cluster: FakeTopics, first: str):
    cluster.marks[TOPIC, "hold"] = (3, 2)
    made = planner(cluster)
    if first == "plan":
        (task,) = made.plan(offsets(3, 5), offsets(5, 2))
        assert task.ranges == (LedgerRange(3, 5, 9), LedgerRange(5, 0, 1))
    else:
        assert made.latest(offsets(3, 5), NO_LIMIT) == offsets(5, 4)
    assert asked(cluster, "attach") == [("attach", TOPIC, "hold")]
    assert asked(cluster, "create", "seek") == []
    assert cluster.marks[TOPIC, "hold"] == (3, 2)


def test_a_hold_that_is_gone_is_made_again_one_entry_before_where_the_query_stands(cluster: FakeTopics):
    planner(cluster).plan(offsets(3, 5), offsets(5, 2))
    assert asked(cluster, "create") == [("create", TOPIC, "hold", (3, 4))]


def test_a_hold_that_is_gone_with_its_data_is_data_loss_every_time(cluster: FakeTopics):
    cluster.trim(TOPIC)
    for _ in range(2):
        with pytest.raises(DataLossError, match=rf"{TOPIC}: .*3:5"):
            planner(cluster).plan(offsets(3, 5), offsets(5, 2))
    assert cluster.marks == {}
    (task,) = planner(cluster, failOnDataLoss="false").plan(offsets(3, 5), offsets(5, 2))
    assert task.ranges == (LedgerRange(5, 0, 1),)


def test_where_a_subscription_made_just_now_stands_does_not_prove_that_the_data_was_there(cluster: FakeTopics):
    cluster.on_create = cluster.trim
    made = planner(cluster)
    made.latest(offsets(3, 5), NO_LIMIT)
    with pytest.raises(DataLossError, match="ledger 3 was deleted"):
        made.latest(offsets(3, 8), NO_LIMIT)


def test_a_ledger_that_was_read_to_its_end_and_is_gone_is_no_loss_while_the_hold_stands(cluster: FakeTopics):
    cluster.marks[TOPIC, "hold"] = (3, 9)
    cluster.trim(TOPIC)
    (task,) = planner(cluster).plan(offsets(3, 10), offsets(5, 2))
    assert task.ranges == (LedgerRange(5, 0, 1),)


def test_a_second_query_on_the_subscription_is_refused_with_a_remedy(cluster: FakeTopics):
    cluster.busy.add(TOPIC)
    with pytest.raises(SourceUnavailableError, match=r"'hold' of .* in use by another query.*option subscription"):
        planner(cluster).initial()


# Triggers


def test_nothing_new_gives_the_start_itself(cluster: FakeTopics):
    made = planner(cluster)
    start = offsets(5, 4)
    assert made.latest(start, NO_LIMIT).text() == start.text()
    cluster.roll(TOPIC, 8)
    assert made.latest(start, NO_LIMIT).text() == start.text(), "an empty new ledger is nothing new"


def test_an_end_never_goes_back(cluster: FakeTopics):
    ahead = offsets(9, 5)
    made = planner(cluster, hold="none", failOnDataLoss="false")
    assert made.latest(ahead, NO_LIMIT).text() == ahead.text()
    with pytest.raises(DataLossError, match="9:5"):
        planner(cluster).latest(ahead, NO_LIMIT)


def test_without_a_hold_a_ledger_that_was_read_to_its_end_may_go_while_the_query_runs(cluster: FakeTopics):
    made = planner(cluster, hold="none")
    made.latest(offsets(3, 10), NO_LIMIT)
    cluster.trim(TOPIC)
    assert made.latest(offsets(3, 10), NO_LIMIT) == offsets(5, 4)
    (task,) = made.plan(offsets(3, 10), offsets(5, 4))
    assert task.ranges == (LedgerRange(5, 0, 3),)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_ledger_that_went_before_the_query_looked_may_have_held_something(cluster: FakeTopics, prepared: bool):
    cluster.trim(TOPIC)
    made = planner(cluster, hold="none")
    if prepared:
        made.prepare_available_now()  # reads the logs before the position of the query is known
    with pytest.raises(DataLossError, match="ledger 3 was deleted"):
        made.latest(offsets(3, 10), NO_LIMIT)


def test_limits_are_in_messages_by_what_the_next_entries_hold(cluster: FakeTopics):
    (packed,) = pack([b"v"] * 5)
    cluster.entry = packed.encode("p", 0, 1)
    made = planner(cluster)
    assert made.latest(offsets(3, 0), Limits(messages_max=20)) == offsets(3, 4)
    assert asked(cluster, "sample") == [("sample", TOPIC, (3, 0))]
    made.latest(offsets(3, 0), Limits(messages_max=20))
    assert len(asked(cluster, "sample")) == 1, "the same place is not asked twice"
    assert made.latest(offsets(3, 0), NO_LIMIT) == offsets(5, 4)


def test_available_now_ends_where_it_began_and_honours_the_limit(cluster: FakeTopics):
    made = planner(cluster)
    made.prepare_available_now()
    cluster.grow(TOPIC, 100)
    cluster.add(OTHER, (9, 5))
    start = made.initial()
    seen = []
    while (end := made.latest(start, Limits(messages_max=6))) != start:
        seen.append(end)
        start = end
    assert seen == [offsets(3, 6), offsets(5, 2), offsets(5, 4)]


def test_a_new_partition_is_held_at_its_earliest_entry_before_it_is_read(cluster: FakeTopics):
    names = [f"{TOPIC}-partition-{number}" for number in range(2)]
    cluster.partition_counts[TOPIC] = 1
    cluster.add(names[0], (1, 5))
    made = planner(cluster)
    start = made.initial()
    assert list(start) == names[:1]
    cluster.partition_counts[TOPIC] = 2
    cluster.add(names[1], (7, 3), (8, 2))
    end = made.latest(start, NO_LIMIT)
    assert end == Offsets({names[0]: Place(1, 5), names[1]: Place(8, 2)})
    assert ("create", names[1], "hold", (7, 0)) in cluster.calls
    tasks = made.plan(start, end)
    assert [task.ranges for task in tasks] == [(LedgerRange(1, 0, 4),), (LedgerRange(7, 0, 2), LedgerRange(8, 0, 1))]


def test_a_pattern_finds_topics_that_come_later(cluster: FakeTopics):
    made = planner(cluster, topic="", topicsPattern=".")
    assert list(made.initial()) == [TOPIC]
    cluster.add(OTHER, (9, 2))
    cluster.add("persistent://public/default/long", (11, 2))
    assert list(made.latest(made.initial(), NO_LIMIT)) == [TOPIC, OTHER]


def test_a_topic_that_was_deleted_under_a_query_is_data_loss(cluster: FakeTopics, caplog: pytest.LogCaptureFixture):
    made = planner(cluster)
    start = made.initial()
    del cluster.logs[TOPIC]
    cluster.unknown.add(TOPIC)
    with pytest.raises(DataLossError, match=f"{TOPIC}.*the topic no longer exists"):
        made.latest(start, NO_LIMIT)
    with pytest.raises(DataLossError, match="no longer exists"):
        planner(cluster).plan(start, offsets(5, 2))
    easy = planner(cluster, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert easy.latest(start, NO_LIMIT) == start
        assert easy.plan(start, offsets(5, 2)) == []
    assert len(caplog.records) == 1


def test_a_partitioned_topic_that_was_deleted_under_a_query_is_data_loss(cluster: FakeTopics):
    cluster.partition_counts[TOPIC] = 1
    cluster.add(f"{TOPIC}-partition-0", (1, 5))
    del cluster.logs[TOPIC]
    start = planner(cluster).initial()
    cluster.logs.clear()
    cluster.partition_counts.clear()
    with pytest.raises(DataLossError, match=r"x-partition-0.*no longer exists"):
        planner(cluster).latest(start, NO_LIMIT)


def test_what_is_gone_is_warned_of_once(cluster: FakeTopics, caplog: pytest.LogCaptureFixture):
    made = planner(cluster, hold="none", failOnDataLoss="false")
    cluster.trim(TOPIC)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            made.plan(offsets(3, 5), offsets(5, 2))
    assert len(caplog.records) == 1


def test_a_broker_whose_answer_does_not_fit_together_is_asked_again(
    cluster: FakeTopics, monkeypatch: pytest.MonkeyPatch
):
    cluster.logs[TOPIC][0][1] = 0  # a ledger shown empty in the middle: it rolls just now
    original = cluster.many_internal_stats

    def answer(topics: list[str]) -> list[Any]:
        found = original(topics)
        cluster.logs[TOPIC][0][1] = 10
        return found

    monkeypatch.setattr(cluster, "many_internal_stats", answer)
    assert planner(cluster, hold="none").initial() == offsets(3, 0)


def test_the_report_tells_the_ends_and_how_far_behind_the_query_is(cluster: FakeTopics):
    made = planner(cluster)
    made.latest(made.initial(), Limits(messages_max=4))
    assert made.report() == {"v": 1, "p": {TOPIC: [5, 4]}, "behind": 10}


def test_tasks_are_as_many_as_asked_for_and_know_what_was_before_them(cluster: FakeTopics):
    tasks = planner(cluster, minPartitions="2", chunkedMessageHold="3").plan(offsets(3, 4), offsets(5, 4))
    assert [task.ranges for task in tasks] == [(LedgerRange(3, 4, 8),), (LedgerRange(3, 9, 9), LedgerRange(5, 0, 3))]
    assert [task.earlier for task in tasks] == [(LedgerRange(3, 1, 3),), (LedgerRange(3, 6, 8),)]


# Commits


def test_a_commit_moves_the_hold_and_stays_behind_for_chunked_messages(cluster: FakeTopics):
    made = planner(cluster, chunkedMessageHold="2")
    made.initial()
    made.commit(offsets(3, 1))
    assert asked(cluster, "ack") == [], "there is nothing so far back"
    made.commit(offsets(5, 1))
    assert asked(cluster, "ack") == [("ack", TOPIC, (3, 8))]
    made.commit(offsets(5, 1))
    made.commit(offsets(3, 5))
    assert len(asked(cluster, "ack")) == 1, "never twice, never back"


def test_a_commit_that_fails_is_a_warning_and_the_next_one_covers_it(
    cluster: FakeTopics, caplog: pytest.LogCaptureFixture
):
    made = planner(cluster, chunkedMessageHold="1")
    made.initial()
    cluster.failing = ServiceUnavailableError("the broker is away")
    with caplog.at_level(logging.WARNING):
        made.commit(offsets(3, 5))
    assert "the broker is away" in caplog.text
    assert cluster.marks[TOPIC, "hold"] == (3, -1)
    cluster.failing = ZeroDivisionError("a mistake of ours")
    with caplog.at_level(logging.WARNING):
        made.commit(offsets(3, 6))
    assert "the next commit does it" in caplog.text
    cluster.failing = None
    made.commit(offsets(3, 8))
    assert cluster.marks[TOPIC, "hold"] == (3, 6)


def test_without_a_hold_no_subscription_is_touched(cluster: FakeTopics):
    made = planner(cluster, hold="none")
    start = made.initial()
    made.plan(start, made.latest(start, NO_LIMIT))
    made.commit(offsets(5, 4))
    assert asked(cluster, "create", "attach", "ack", "seek") == []


# Batch


def test_a_batch_read_is_what_is_there_now(cluster: FakeTopics):
    made = planner(cluster, use="batch")
    (task,) = made.batch()
    assert task.ranges == (LedgerRange(3, 0, 9), LedgerRange(5, 0, 3))
    assert asked(cluster, "create", "attach") == []
    cluster.grow(TOPIC, 1)
    cluster.times |= {1: MessageId(3, 8), 2: MessageId(5, 5)}
    made = planner(cluster, use="batch", startingTimestamp="1", endingTimestamp="2")
    assert made.batch()[0].ranges == (LedgerRange(3, 8, 9), LedgerRange(5, 0, 4))


def test_an_empty_topic_has_no_tasks(cluster: FakeTopics):
    cluster.add(TOPIC, (3, 0))
    assert planner(cluster, use="batch").batch() == []


def test_a_batch_read_with_a_subscription_makes_it_and_leaves_it_alone(cluster: FakeTopics):
    planner(cluster, use="batch", subscription="kept").batch()
    assert cluster.marks == {(TOPIC, "kept"): (3, -1)}
    cluster.marks[TOPIC, "kept"] = (3, 5)
    planner(cluster, use="batch", subscription="kept").batch()
    assert cluster.marks == {(TOPIC, "kept"): (3, 5)}
    assert asked(cluster, "attach", "seek", "ack") == []


def test_nothing_is_connected_before_the_first_question_and_closing_gives_everything_back(cluster: FakeTopics):
    made = planner(cluster)
    assert cluster.calls == []
    made.close()
    assert cluster.calls == []
    made.initial()
    made.close()
    assert cluster.calls[-2:] == [("detach", TOPIC), ("release",)]
    assert cluster.marks == {(TOPIC, "hold"): (3, -1)}, "the subscription stays"
