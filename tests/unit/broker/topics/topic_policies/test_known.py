"""broker.topics.topic_policies.known: what holds for thousands of topics is worked out once, and never out of date."""

from __future__ import annotations

from dataclasses import replace

from broker.config import BrokerOptions
from broker.topics.topic_policies.catalog import MAX_PRODUCERS, Policy
from broker.topics.topic_policies.kinds import LIMIT, reader
from broker.topics.topic_policies.known import Defaults, Held, NamespaceFields
from managed_ledger.config import LogConfig
from quire.wire.pulsar.names import NamespaceName, TopicName

LOGS = LogConfig(ensemble_size=2, write_quorum=2, ack_quorum=2, retention_minutes=5, retention_mb=6)
NAMESPACE = NamespaceName.parse("a/b")


class Scene:
    """A namespace with topics, and the values that were read from its policies."""

    def __init__(self) -> None:
        self.namespace = NamespaceFields(NAMESPACE, watched=True)
        self.defaults = Defaults(LOGS, BrokerOptions(producers_per_topic_max=9))
        self.values_read: list[object] = []
        self.policy: Policy[int] = replace(MAX_PRODUCERS, read=self.read)

    def read(self, value: object) -> int:
        self.values_read.append(value)
        found: int = reader(LIMIT, "maxProducerPerTopic")(value)
        return found

    def topic(self, local: str) -> Held:
        return Held(self.defaults, self.namespace, TopicName.parse(f"persistent://a/b/{local}"))

    def values(self, *topics: str) -> list[int]:
        return [self.topic(local).value(self.policy) for local in topics]


def test_a_value_of_a_namespace_is_read_once_for_all_topics_that_have_none_of_their_own() -> None:
    scene = Scene()
    scene.namespace.own = {"max_producers_per_topic": 3}
    assert scene.values("one", "two", "three-partition-1", "one") == [3, 3, 3, 3]
    assert scene.values_read == [3]


def test_values_of_a_namespace_hold_from_the_moment_they_change() -> None:
    scene = Scene()
    assert scene.values("one", "two") == [9, 9]
    for found, holds in ((4, 4), (0, 0), (-1, 9), ("none", 9), (2, 2)):
        scene.namespace.own = {"max_producers_per_topic": found}
        assert scene.values("one", "two") == [holds, holds]
    scene.namespace.own = None
    assert scene.values("one") == [9]


def test_a_topic_with_policies_of_its_own_takes_no_value_from_the_others_and_gives_them_none() -> None:
    scene = Scene()
    scene.namespace.own = {"max_producers_per_topic": 3}
    scene.namespace.with_nodes({"persistent://a/b/one": {"maxProducerPerTopic": 1}, "persistent://a/b/two": {}})
    assert scene.values("one", "two", "three", "one-partition-7") == [1, 3, 3, 1]
    scene.namespace.with_nodes({})
    assert scene.values("one") == [3]


def test_what_is_worked_out_of_the_policies_is_worked_out_once_for_topics_without_any_of_their_own() -> None:
    scene = Scene()
    scene.namespace.own = {"max_producers_per_topic": 3}
    scene.namespace.with_nodes({"persistent://a/b/own": {"maxProducerPerTopic": 1}})
    worked_out = []

    def doubled(held: Held) -> int:
        worked_out.append(found := 2 * held.value(MAX_PRODUCERS))
        return found

    def of(*topics: str) -> list[int]:
        return [scene.topic(local).derived(doubled) for local in topics]

    assert of("one", "own", "two", "one") == [6, 2, 6, 6]
    assert worked_out == [6, 2]
    scene.namespace.own = {"max_producers_per_topic": 4}
    assert of("one", "own", "two") == [8, 2, 8]


def test_ledgers_and_deduplication_follow_the_policies_of_the_namespace_and_of_the_topic() -> None:
    scene = Scene()
    retention = {"retentionTimeInMinutes": 7, "retentionSizeInMB": 8}
    scene.namespace.with_nodes(
        {"persistent://a/b/own": {"deduplicationEnabled": False, "retentionPolicies": retention}}
    )
    one, own = scene.topic("one"), scene.topic("own")
    assert [one().retention_minutes, own().retention_minutes] == [LOGS.retention_minutes, 7]
    assert [one.asks_deduplication(), own.asks_deduplication()] == [False, False]
    scene.namespace.own = {"deduplicationEnabled": True, "retention_policies": {**retention, "retentionSizeInMB": -1}}
    assert [one().retention_mb, own().retention_mb] == [-1, 8]
    assert [one.asks_deduplication(), own.asks_deduplication()] == [True, False]
    log_of_changes = scene.topic("__change_events")
    assert (log_of_changes().retention_minutes, log_of_changes.asks_deduplication()) == (-1, False)
