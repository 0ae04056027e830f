"""Loaded topics follow a change of their policies: rates, rules of delivery, and deduplication."""

from __future__ import annotations

from collections.abc import Callable

from broker.context import Context
from broker.slices import sliced
from broker.topics.deduplication.switch import follow_policies
from broker.topics.life.sending import follow_sends
from broker.topics.policies import TopicPolicies
from broker.topics.rates.broker_rates import BrokerRates
from broker.topics.rates.following import follow_rates
from broker.topics.topic import Topic

TOPICS_IN_STEP = 100
"""Topics that are looked at before other tasks run."""


class PolicyFollowing:
    """Following by the topics of one broker."""

    def __init__(
        self, context: Context, policies: TopicPolicies, rates: BrokerRates, loaded: Callable[[], list[Topic]]
    ) -> None:
        self._context = context
        self._policies = policies
        self._rates = rates
        self._loaded = loaded
        policies.on_change = self._changed
        self.also: Callable[[str | None], None] | None = None
        """Called with the namespace too: lets the non-persistent topics follow."""

    def everything(self) -> None:
        """Let all topics follow, because options of the broker have changed."""
        self._changed(None)

    def _changed(self, namespace: str | None) -> None:
        if self.also is not None:
            self.also(namespace)
        self._context.nursery.start_soon(self._follow, namespace, name=f"follow policies of {namespace}")

    async def _follow(self, namespace: str | None) -> None:
        """Let the topics of a namespace follow, or all. Deduplication of topics that are not in use follows when a
        producer comes."""
        async for topic in sliced(self._loaded(), TOPICS_IN_STEP):
            if topic.closing or namespace not in (None, topic.name.namespace_path):
                continue
            follow_rates(topic, self._rates)
            follow_sends(topic)
            for subscription in list(topic.subscriptions.values()):
                subscription.follow_policies()
            in_use = topic.producers or topic.deduplication is not None
            held = self._policies.known(topic.name) if in_use else None
            if held is not None:
                follow_policies(topic, held)
