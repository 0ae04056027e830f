"""Policies of a topic and its namespace."""

from __future__ import annotations

import pulsar

from tests.interop.turns_parts.side import (
    Json,
    Side,
)
from tests.support.waiting import wait_until


class Policies:
    """Policies of a topic and its namespace, some more with each turn, and properties."""

    topic, namespace = "policies", "public/turns"
    of_topic = (
        ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}),
        ("maxConsumers", 7),
        ("publishRate", {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1}),
        ("delayedDelivery", {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 0}),
        ("compactionThreshold", 100_000_000),
        ("maxConsumersPerSubscription", 5),
        ("maxSubscriptionsPerTopic", 9),
        ("maxUnackedMessagesOnConsumer", 4_000),
        (
            "dispatchRate",
            {"dispatchThrottlingRateInMsg": 5000, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1},
        ),
        ("messageTTL?messageTTL=3600", None),
        (
            "inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 600,
                "deleteWhileInactive": False,
            },
        ),
        ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": True}),
    )
    """Two for each turn; the first of two turns before is taken away again."""
    of_namespace = (
        ("POST", "retention", {"retentionTimeInMinutes": 20, "retentionSizeInMB": 200}),
        ("POST", "messageTTL", 7200),
        ("POST", "backlogQuota", {"limitSize": 1_000_000, "limitTime": -1, "policy": "consumer_backlog_eviction"}),
        ("POST", "deduplication", True),
        ("POST", "autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}),
        ("POST", "maxConsumersPerTopic", 30),
    )

    differ = frozenset(
        (
            "maxSubscriptionsPerTopic",
            "maxConsumersPerSubscription",
            "publishRate",
            "persistence",
            "backlogQuotaMap",
            "subscriptionTypesEnabled",
        )
    )
    """Policies with `?applied=true` that are not compared: the original shows nothing of the first three where only
    broker.conf has them, a rate of its cursors in the fourth, and changes its own copy of the namespace's policies when
    it is asked for the last."""

    @property
    def _path(self) -> str:
        return f"persistent/{self.namespace}/{self.topic}"

    def work(self, side: Side, turn: int) -> None:
        if turn == 1:
            side.ask("PUT", f"namespaces/{self.namespace}")
            side.ask("PUT", self._path)
        for resource, body in self.of_topic[2 * turn - 2 : 2 * turn]:
            side.ask("POST", f"{self._path}/{resource}", **({} if body is None else {"json": body}))
        if turn > 2:
            side.ask("DELETE", f"{self._path}/{self.of_topic[2 * turn - 6][0]}")
        method, resource, body = self.of_namespace[turn - 1]
        side.ask(method, f"namespaces/{self.namespace}/{resource}", json=body)
        side.ask("PUT", f"{self._path}/properties", json={f"turn{turn}": "yes", "last": str(turn)})
        name = f"persistent://{self.namespace}/{self.topic}"
        side.client.subscribe(name, f"s{turn}", pulsar.ConsumerType.Shared).close()
        side.ask("PUT", f"{self._path}/subscription/s{turn}/properties", json={"turn": str(turn)})
        wait_until(
            lambda: all(map(lambda each: self._is_seen(side, *each), self.of_topic[2 * turn - 2 : 2 * turn])),
            "policies",
        )

    def _is_seen(self, side: Side, resource: str, body: Json) -> bool:
        """Return whether the broker shows a policy: the original shows what it reads back from its log."""
        found = side.ask("GET", f"{self._path}/{resource.partition('?')[0]}")
        return found is not None

    def view(self, side: Side) -> Json:
        names = [resource.partition("?")[0] for resource, _ in self.of_topic]
        names += [
            "maxProducers",
            "subscriptionTypesEnabled",
            "deduplicationEnabled",
            "persistence",
            "subscribeRate",
            "backlogQuotaMap",
        ]
        topic = {each: side.ask("GET", f"{self._path}/{each}") for each in names}
        applied = {each: side.ask("GET", f"{self._path}/{each}?applied=true") for each in {*names} - self.differ}
        properties = side.ask("GET", f"{self._path}/properties")
        subscriptions = sorted(side.ask("GET", f"{self._path}/subscriptions"))
        own = [name for name in subscriptions if name != "__compaction"]
        each = {name: side.ask("GET", f"{self._path}/subscription/{name}/properties") for name in own}
        namespace = side.ask("GET", f"namespaces/{self.namespace}")
        return {
            "topic": topic,
            "applied": applied,
            "properties": properties,
            "names": subscriptions,
            "each": each,
            "namespace": namespace,
        }
