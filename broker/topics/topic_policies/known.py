"""Policies of a namespace and of its topics as they are known in memory, and the values that hold for a topic."""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakValueDictionary

import trio

from broker.config import BrokerOptions
from broker.ownership.tenants import POLICIES
from broker.ownership.values import Json
from broker.topics.delayed_delivery import DelayedDelivery, effective_delayed, of_broker
from broker.topics.policy_values import asks_deduplication, effective, snapshot_interval_s
from broker.topics.topic_policies import catalog
from broker.topics.topic_policies.catalog import Policy
from broker.topics.topic_policies.kinds import DispatchRate
from managed_ledger.config import LogConfig
from quire.wire.pulsar.names import NamespaceName, TopicName

ROOT = "/admin/topic-policies/local"

T = TypeVar("T")


class Defaults:
    """Values of broker.conf."""

    __slots__ = ("delayed", "logs", "options")

    def __init__(self, logs: LogConfig, options: BrokerOptions) -> None:
        self.logs = logs
        self.options = options
        self.delayed = of_broker(options)


def topic_path(name: TopicName) -> str:
    """Return the path of the policies of a topic; a partition has those of its topic.

    >>> topic_path(TopicName.parse("persistent://a/b/x y-partition-3"))
    '/admin/topic-policies/local/a/b/persistent/x+y'
    """
    return f"{ROOT}/{name.partitioned.managed_ledger_path}"


class TopicFields:
    """Policies of one topic that has any of its own, or had. None: it has none now."""

    __slots__ = ("__weakref__", "known", "own", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.own: Json | None = None
        self.known = False


class NamespaceFields:
    """Known policies of one namespace and of its topics in use."""

    def __init__(self, name: NamespaceName, *, watched: bool) -> None:
        self.path = f"{POLICIES}/{name}"
        self.folder = f"{ROOT}/{name}/persistent"
        self.own: Json | None = None
        """The namespace's policies."""
        self.topics: WeakValueDictionary[str, TopicFields] = WeakValueDictionary()
        """Topics in use that had policies when they were loaded, and those of `gained`; by path."""
        self.gained: dict[str, TopicFields] = {}
        """Topics that got policies while the namespace was watched. They are kept here, in use or not: a topic that was
        loaded before has no `TopicFields`, because most topics never have any policies and 10^5 of them are loaded."""
        self.having: frozenset[str] | None = None
        """Paths of the policies of topics that have any of their own, in use or not. None: not read yet."""
        self.changes = 0
        """Number of times that something may have changed."""
        self.uses = 0
        """Number of `Held` that exist."""
        self.refreshes = 0
        self.notes = 0
        """Number of changes by this broker."""
        self.reports = 0
        """Number of changes that the watches reported."""
        self.reports_read = 0
        """Number of those that came before the last complete refresh."""
        self.watched = watched
        self.forgotten = False
        """True once it is no longer watched; the next caller starts again."""
        self.ready = trio.Event()
        """Set when the first read is done, or has failed permanently."""

    @property
    def is_known(self) -> bool:
        """Return whether it was read, and is kept up to date."""
        return self.watched and self.ready.is_set() and not self.forgotten

    def topic(self, name: TopicName) -> TopicFields | None:
        """Return the topic with policies of its own; None: it is known to have none."""
        known = self.having if self.reports == self.reports_read else None
        if known is not None and not known:
            return None  # the rule, for thousands of topics: no path has to be made
        path = topic_path(name)
        if known is not None and path not in known:
            return None
        found = self.topics.get(path)
        if found is None:
            found = self.topics[path] = TopicFields(path)
        return found

    def now_having(self, having: frozenset[str]) -> None:
        """Learn the paths of all topics that have policies."""
        if self.having is None:
            self.having = having
            return
        self.gained = {path: topic for path, topic in self.gained.items() if path in having}
        for path in having - self.having:
            topic = self.topics.get(path)
            if topic is None:
                topic = self.topics[path] = TopicFields(path)
            self.gained[path] = topic
        self.having = having


class Held:
    """The policies of a topic's namespace and its own, as they are known at the moment they are asked for; None: there
    are none. Called, it says what holds for the ledgers of the topic. They stay known as long as this is kept."""

    __slots__ = ("_defaults", "_name", "_namespace", "_topic")

    def __init__(
        self, defaults: Defaults, namespace: NamespaceFields, name: TopicName, topic: TopicFields | None
    ) -> None:
        self._defaults = defaults
        self._namespace = namespace
        self._name = name
        self._topic = topic
        namespace.uses += 1

    def __del__(self) -> None:
        self._namespace.uses -= 1

    def __call__(self) -> LogConfig:
        return effective(self._defaults.logs, self._namespace.own, self.of_topic)

    @property
    def of_namespace(self) -> Json | None:
        return self._namespace.own

    @property
    def of_topic(self) -> Json | None:
        topic = self._topic
        if topic is None and self._namespace.gained:
            topic = self._namespace.gained.get(topic_path(self._name))
        return None if topic is None else topic.own

    def delayed_delivery(self) -> DelayedDelivery:
        """Return the rules for the topic's delayed messages."""
        return effective_delayed(self._defaults.delayed, self._namespace.own, self.of_topic)

    def asks_deduplication(self) -> bool:
        """Return whether duplicates of a producer of the topic are to be dropped.

        Never for topics of the system, as in the original: others wait for them to be loaded. Source: Pulsar's
        SystemTopic.isDeduplicationEnabled."""
        default = self._defaults.options.deduplication
        return asks_deduplication(self._namespace.own, self.of_topic, default) and not is_of_system(self._name)

    def snapshot_interval_s(self) -> int:
        """Return the time in seconds between snapshots of the deduplication; 0: there are none."""
        default = self._defaults.options.deduplication_snapshot_interval_s
        return snapshot_interval_s(self._namespace.own, self.of_topic, default)

    def value(self, policy: Policy[T]) -> T:
        """Return the value of a policy that holds for the topic: its own, else its namespace's, else broker.conf's.

        It is read anew at each call: keep it where it is needed for each entry, and ask again when `changes` differs.
        """
        options = self._defaults.options
        return policy.effective(self.of_topic, self._namespace.own, options.cluster_name, options)

    @property
    def changes(self) -> int:
        """Return a number that is another one after each change of what holds."""
        return self._namespace.changes

    def subscription_dispatch_rate(self, subscription: str) -> DispatchRate:
        """Return the rate at which one subscription may get messages."""
        own = catalog.subscription_dispatch_rate(self.of_topic, subscription)
        return self.value(catalog.SUBSCRIPTION_DISPATCH_RATE) if own is None else own


def is_of_system(name: TopicName) -> bool:
    """Return whether the topic is one of those that the original keeps for itself. Source: Pulsar's SystemTopicNames.

    >>> is_of_system(TopicName.parse("persistent://t/n/__change_events-partition-0"))
    True
    """
    local = name.full.rpartition("/")[2]
    return name.namespace_path == "pulsar/system" or local.startswith(("__change_events", "__transaction_"))
