"""Policies of a namespace and of its topics as they are known in memory, and the values that hold for a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

import trio

from broker.config import BrokerOptions
from broker.ownership.tenants import LOCAL_POLICIES, POLICIES
from broker.ownership.values import Json
from broker.slices import sliced
from broker.topics.delayed_delivery import DelayedDelivery, effective_delayed, of_broker
from broker.topics.policy_values import asks_deduplication, effective, snapshot_interval_s
from broker.topics.system_names import is_keyed_system_topic
from broker.topics.topic_policies import catalog
from broker.topics.topic_policies.catalog import Policy
from broker.topics.topic_policies.kinds import DispatchRate
from broker.topics.topic_policies.source import GLOBAL, PolicyChanges, is_change_events
from managed_ledger.config import LogConfig
from quire.ledger.position import Position
from quire.wire.pulsar.names import NamespaceName, TopicName

ROOT: Final = "/admin/topic-policies/local"

NAMES_IN_STEP: Final = 500
"""Topics of a namespace that a change of policies looks at before other tasks run."""

T = TypeVar("T")


class Defaults:
    """Values of broker.conf."""

    __slots__ = ("_values", "delayed", "logs", "options")

    def __init__(self, logs: LogConfig, options: BrokerOptions) -> None:
        self.logs = logs
        self.options = options
        self.delayed = of_broker(options)
        self._values: dict[Policy[Any], Any] = {}

    def changed(self, logs: LogConfig) -> None:
        """Notice that the options have changed. `logs`: the values for ledgers now."""
        self.logs = logs
        self.delayed = of_broker(self.options)
        self._values.clear()

    def value(self, policy: Policy[T]) -> T:
        """Return the value of a policy."""
        found = self._values.get(policy)
        if found is None:
            found = self._values[policy] = policy.of_broker(self.options)
        value: T = found
        return value


def topic_path(name: TopicName) -> str:
    """Return the path of the policies of a topic; a partition has those of its topic.

    >>> topic_path(TopicName.parse("persistent://a/b/x y-partition-3"))
    '/admin/topic-policies/local/a/b/persistent/x+y'
    """
    return f"{ROOT}/{name.partitioned.managed_ledger_path}"


class _Log:
    """Known content of one log of change events."""

    __slots__ = ("fields", "upto")

    def __init__(self) -> None:
        self.upto: Position | None = None
        self.fields: dict[str, Json] = {}
        """By key; see `events`."""


class NamespaceFields:
    """Known policies of one namespace and of its topics."""

    def __init__(self, name: NamespaceName, *, watched: bool) -> None:
        self.name = name
        self.path = f"{POLICIES}/{name}"
        self.folder = f"{ROOT}/{name}/persistent"
        self.local_path = f"{LOCAL_POLICIES}/{name}"
        self._own: Json | None = None
        self._local: Json | None = None
        self.values: dict[object, Any] = {}
        """Values for topics without policies of their own: by policy, or by the function that worked them out."""
        self.topics: dict[str, Json] = {}
        """Policies of the topics that have any, by full name."""
        self.nodes: dict[str, Json] = {}
        """The same of nodes of the metadata store, which count where no log has any."""
        self.logs: dict[str, _Log] = {}
        """By local name."""
        self.changes = 0
        """Number of times that something may have changed."""
        self.uses = 0
        """Number of `Held` that exist, and of tasks that wait for what is not known yet."""
        self.watched = watched
        self.forgotten = False
        """True once it is no longer watched; the next caller starts again."""
        self.own_known = trio.Event()
        """Set when `own` was read, or will not be."""
        self.known = False
        """True when all of it was read once; from then on it is kept up to date."""
        self.looked = trio.Event()
        """Set at the end of each attempt to read the topics' policies, and replaced."""
        self.problem = ""
        """Why the last attempt failed."""
        self.turn = trio.Lock()
        """For who reads logs."""

    @property
    def own(self) -> Json | None:
        """The namespace's policies. They are replaced and never changed."""
        return self._own

    @own.setter
    def own(self, fields: Json | None) -> None:
        self._own = fields
        self.values = {}

    @property
    def local(self) -> Json | None:
        """The namespace's local policies. They are replaced and never changed."""
        return self._local

    @local.setter
    def local(self, fields: Json | None) -> None:
        if fields != self._local:
            self.values = {}
        self._local = fields

    @property
    def is_known(self) -> bool:
        """Return whether it was read, and is kept up to date."""
        return self.watched and self.known and not self.forgotten

    def with_nodes(self, nodes: dict[str, Json]) -> None:
        """Learn what is in nodes, by full name of the topic."""
        if nodes != self.nodes:
            names = self.nodes.keys() | nodes.keys()
            self.nodes = nodes
            for full in names:
                self._work_out(full)
            self.changes += 1

    def with_logs(self, names: Iterable[str]) -> None:
        """Learn which logs there are."""
        left = set(names)
        gone = [name for name in self.logs if name not in left]
        keys = {key for name in gone for key in self.logs.pop(name).fields}
        for key in keys:
            self._work_out(key.removeprefix(GLOBAL))
        self.changes += len(gone)

    async def with_changes(self, name: str, found: PolicyChanges) -> None:
        """Learn what a log says; what was learned before counts for nothing."""
        log = self.logs.setdefault(name, _Log())
        if not found.whole and log.upto is not None and found.upto < log.upto:
            return
        gone = [key for key in log.fields if key not in found.policies] if found.whole else []
        async for key in sliced([*found.policies, *gone], NAMES_IN_STEP):
            fields = found.policies.get(key)
            if fields is None:
                log.fields.pop(key, None)
            else:
                log.fields[key] = fields
            self._work_out(key.removeprefix(GLOBAL))
        log.upto = found.upto
        self.changes += bool(found.policies or gone)

    def upto(self, name: str) -> Position | None:
        """Return the place to which a log is known; None: nothing of it is."""
        log = self.logs.get(name)
        return None if log is None else log.upto

    def said(self, full: str, *, is_global: bool) -> Json | None:
        """Return the policies of a topic of one kind."""
        key = f"{GLOBAL}{full}" if is_global else full
        for log in self.logs.values():
            if key in log.fields:
                return log.fields[key]
        return None if is_global else self.nodes.get(full)

    def _work_out(self, full: str) -> None:
        local, everywhere = self.said(full, is_global=False), self.said(full, is_global=True)
        merged = local if everywhere is None else everywhere | (local or {})
        if merged is None:
            self.topics.pop(full, None)
        else:
            self.topics[full] = merged


class Held:
    """The policies of a topic's namespace and its own, as they are known at the moment they are asked for; None: there
    are none. Called, it says what holds for the ledgers of the topic. They stay known as long as this is kept."""

    __slots__ = ("_defaults", "_name", "_namespace", "is_compacted")

    def __init__(self, defaults: Defaults, namespace: NamespaceFields, name: TopicName) -> None:
        self._defaults = defaults
        self._namespace = namespace
        self._name = name
        self.is_compacted = False
        """True once a topic of the servers has a compacted view, and a cursor that keeps what is behind it."""
        namespace.uses += 1

    def __del__(self) -> None:
        self._namespace.uses -= 1

    def __call__(self) -> LogConfig:
        found = self.derived(_log_config)
        if not self.is_compacted and is_keyed_system_topic(self._name):
            # A message counts until there is another one of its key, however long that takes, or it is compacted.
            found = replace(found, retention_minutes=-1, retention_mb=-1)
        return found

    @property
    def defaults(self) -> Defaults:
        return self._defaults

    @property
    def of_namespace(self) -> Json | None:
        return self._namespace.own

    @property
    def of_local(self) -> Json | None:
        """Return the namespace's local policies."""
        return self._namespace.local

    @property
    def of_topic(self) -> Json | None:
        topics = self._namespace.topics
        if not topics or is_change_events(self._name):
            return None  # the rule, for thousands of topics: no name has to be made
        return topics.get(self._name.partitioned.full)

    def delayed_delivery(self) -> DelayedDelivery:
        """Return the rules for the topic's delayed messages."""
        return effective_delayed(self._defaults.delayed, self._namespace.own, self.of_topic)

    def asks_deduplication(self) -> bool:
        """Return whether duplicates of a producer of the topic are to be dropped.

        Never for topics of the system, as in the original: others wait for them to be loaded. Source: Pulsar's
        SystemTopic.isDeduplicationEnabled."""
        return self.derived(_asks_deduplication) and not is_of_system(self._name)

    def snapshot_interval_s(self) -> int:
        """Return the time in seconds between snapshots of the deduplication; 0: there are none."""
        default = self._defaults.options.deduplication_snapshot_interval_s
        return snapshot_interval_s(self._namespace.own, self.of_topic, default)

    def value(self, policy: Policy[T]) -> T:
        """Return the value of a policy that holds for the topic: its own, else its namespace's, else broker.conf's.

        It is read anew at each call: keep it where it is needed for each entry, and ask again when `changes` differs.
        """
        namespace = self._namespace
        if namespace.topics and (own := policy.of_topic(self.of_topic)) is not None:
            return own
        # Worked out once, not by thousands of topics.
        found = namespace.values.get(policy)
        if found is None:
            said = policy.of_namespace(namespace.own, self._defaults.options.cluster_name)
            found = namespace.values[policy] = self._defaults.value(policy) if said is None else said
        value: T = found
        return value

    def derived(self, work_out: Callable[[Held], T]) -> T:
        """Return `work_out` of these policies, which uses nothing of the topic itself. For topics without policies of
        their own it is called once, until the policies of their namespace change. Pass a function of a module, and
        never a new one: it is the key."""
        if self._namespace.topics and self.of_topic is not None:
            return work_out(self)
        values = self._namespace.values
        found = values.get(work_out)
        if found is None:
            found = values[work_out] = work_out(self)
        value: T = found
        return value

    @property
    def changes(self) -> int:
        """Return a number that is another one after each change of what holds."""
        return self._namespace.changes

    def subscription_dispatch_rate(self, subscription: str) -> DispatchRate:
        """Return the rate at which one subscription may get messages."""
        own = catalog.subscription_dispatch_rate(self.of_topic, subscription)
        return self.value(catalog.SUBSCRIPTION_DISPATCH_RATE) if own is None else own


def _log_config(held: Held) -> LogConfig:
    return effective(held.defaults.logs, held.of_namespace, held.of_topic, held.of_local)


def _asks_deduplication(held: Held) -> bool:
    return asks_deduplication(held.of_namespace, held.of_topic, held.defaults.options.deduplication)


def value_of(held: Held | None, policy: Policy[T], options: BrokerOptions) -> T:
    """Return the value of a policy that holds for a topic; broker.conf's if it has no policies."""
    return policy.of_broker(options) if held is None else held.value(policy)


def is_of_system(name: TopicName) -> bool:
    """Return whether the topic is one of those that the original keeps for itself. Source: Pulsar's SystemTopicNames.

    >>> is_of_system(TopicName.parse("persistent://t/n/__change_events-partition-0"))
    True
    """
    local = name.full.rpartition("/")[2]
    return name.namespace_path == "pulsar/system" or local.startswith(("__change_events", "__transaction_"))
