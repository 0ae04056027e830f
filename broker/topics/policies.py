"""Policies of topics: those of their namespace, and their own. Read once, then watched, so that what holds for a log's
next ledger is known from memory.

    watched: /admin/policies/<t>/<ns>                                 the namespace's
             /admin/topic-policies/local/<t>/<ns>/persistent          the folder of its topics' own

One task per namespace watches both, however many topics there are. A watch on a folder reports new and deleted
children, not changes of their values. So a change of a child's value writes the folder in the same transaction.

While the metadata store cannot be reached, what was known last stays true.

Source: Pulsar's MetadataStoreTopicPoliciesService (path; a partition has the policies of its topic).
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

import trio

from broker.errors import MetadataUnavailableError, translated
from broker.ownership.following import Tasks
from broker.ownership.tenants import POLICIES
from broker.ownership.values import Json, encode_json
from broker.slices import sliced
from broker.topics.delayed_delivery import DELAYED_DELIVERY_DEFAULT, DelayedDelivery, effective_delayed
from broker.topics.policy_values import (
    NAMESPACE_COMPACTION,
    NAMESPACE_TTL,
    SUBSCRIPTION_EXPIRATION,
    TOPIC_COMPACTION,
    TOPIC_TTL,
    asks_deduplication,
    decode,
    effective,
    first_said,
    first_size,
    snapshot_interval_s,
)
from managed_ledger.config import LogConfig
from quire.metadata import paths
from quire.metadata.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from quire.metadata.store import ANY_VERSION, Delete, MetadataStore, Op, Put, Watch
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

log = get_logger(__name__)

ROOT = "/admin/topic-policies/local"
NAMES_IN_STEP = 500
"""Topics of a namespace that a change of policies looks at before other tasks run."""
RETRY_S = 1.0
"""Time between attempts to read while the store is unreachable and does not announce its return."""


def topic_path(name: TopicName) -> str:
    """Return the path of the policies of a topic; a partition has those of its topic.

    >>> topic_path(TopicName.parse("persistent://a/b/x y-partition-3"))
    '/admin/topic-policies/local/a/b/persistent/x+y'
    """
    return f"{ROOT}/{name.partitioned.managed_ledger_path}"


class _Topic:
    """Policies of one topic that has any of its own, or had. None: it has none now."""

    __slots__ = ("__weakref__", "known", "own", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.own: Json | None = None
        self.known = False


class _Namespace:
    """Known policies of one namespace and of its topics in use."""

    def __init__(self, name: NamespaceName, *, watched: bool) -> None:
        self.path = f"{POLICIES}/{name}"
        self.folder = f"{ROOT}/{name}/persistent"
        self.own: Json | None = None
        """The namespace's policies."""
        self.topics: WeakValueDictionary[str, _Topic] = WeakValueDictionary()
        """Topics in use that had policies when they were loaded, and those of `gained`; by path."""
        self.gained: dict[str, _Topic] = {}
        """Topics that got policies while the namespace was watched. They are kept here, in use or not: a topic that was
        loaded before has no `_Topic`, because most topics never have any policies and 10^5 of them are loaded."""
        self.having: frozenset[str] | None = None
        """Paths of the policies of topics that have any of their own, in use or not. None: not read yet."""
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

    def topic(self, name: TopicName) -> _Topic | None:
        """Return the topic with policies of its own; None: it is known to have none."""
        known = self.having if self.reports == self.reports_read else None
        if known is not None and not known:
            return None  # the rule, for thousands of topics: no path has to be made
        path = topic_path(name)
        if known is not None and path not in known:
            return None
        found = self.topics.get(path)
        if found is None:
            found = self.topics[path] = _Topic(path)
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
                topic = self.topics[path] = _Topic(path)
            self.gained[path] = topic
        self.having = having


class Held:
    """The policies of a topic's namespace and its own, as they are known at the moment they are asked for; None: there
    are none. Called, it says what holds for the ledgers of the topic. They stay known as long as this is kept."""

    __slots__ = ("_name", "_namespace", "_policies", "_topic")

    def __init__(self, policies: TopicPolicies, namespace: _Namespace, name: TopicName, topic: _Topic | None) -> None:
        self._policies = policies
        self._namespace = namespace
        self._name = name
        self._topic = topic
        namespace.uses += 1

    def __del__(self) -> None:
        self._namespace.uses -= 1

    def __call__(self) -> LogConfig:
        return effective(self._policies.default, self._namespace.own, self.of_topic)

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
        return effective_delayed(self._policies.delayed, self._namespace.own, self.of_topic)

    def message_ttl_s(self, default: int) -> int:
        """Return the age at which messages of the topic expire; 0: they do not."""
        topic, namespace = self.of_topic or {}, self._namespace.own or {}
        return first_said(topic.get(TOPIC_TTL), namespace.get(NAMESPACE_TTL), default=default)

    def subscription_expiration_minutes(self, default: int) -> int:
        """Return how long a subscription without consumers is kept; 0: for ever."""
        return first_said((self._namespace.own or {}).get(SUBSCRIPTION_EXPIRATION), default=default)

    def compaction_threshold(self, default: int) -> int:
        """Return the bytes since its last compaction above which the topic is compacted; 0: only when asked."""
        topic, namespace = self.of_topic or {}, self._namespace.own or {}
        return first_size(topic.get(TOPIC_COMPACTION), namespace.get(NAMESPACE_COMPACTION), default=default)

    def asks_deduplication(self) -> bool:
        """Return whether duplicates of a producer of the topic are to be dropped.

        Never for topics of the system, as in the original: others wait for them to be loaded. Source: Pulsar's
        SystemTopic.isDeduplicationEnabled."""
        default = self._policies.deduplicate
        return asks_deduplication(self._namespace.own, self.of_topic, default) and not is_of_system(self._name)

    def snapshot_interval_s(self) -> int:
        """Return the time in seconds between snapshots of the deduplication; 0: there are none."""
        return snapshot_interval_s(self._namespace.own, self.of_topic, self._policies.snapshot_interval_s)


def is_of_system(name: TopicName) -> bool:
    """Return whether the topic is one of those that the original keeps for itself. Source: Pulsar's SystemTopicNames.

    >>> is_of_system(TopicName.parse("persistent://t/n/__change_events-partition-0"))
    True
    """
    local = name.full.rpartition("/")[2]
    return name.namespace_path == "pulsar/system" or local.startswith(("__change_events", "__transaction_"))


class TopicPolicies:
    """Policies of topics.

    `run` watches, in a nursery of its owner. Before it runs, and where it does not, every call reads. `default` and
    `delayed`: the values of broker.conf. `deduplicate`: brokerDeduplicationEnabled; `snapshot_interval_s`:
    brokerDeduplicationSnapshotIntervalSeconds."""

    def __init__(
        self,
        metadata: MetadataStore,
        default: LogConfig,
        delayed: DelayedDelivery = DELAYED_DELIVERY_DEFAULT,
        *,
        deduplicate: bool = False,
        snapshot_interval_s: int = 120,
    ) -> None:
        self.default = default
        self.delayed = delayed
        self.deduplicate = deduplicate
        self.snapshot_interval_s = snapshot_interval_s
        self.on_change: Callable[[str], None] = _ignore
        """Called with the path of a namespace when its policies, or those of its topics, may have changed."""
        self._metadata = metadata
        self._namespaces: dict[str, _Namespace] = {}
        self._tasks = Tasks()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the known policies up to date, until cancelled."""
        await self._tasks.run(task_status)

    # For logs

    def known(self, name: TopicName) -> Held | None:
        """Return `load` from memory; None: something has to be read."""
        namespace = self._namespaces.get(name.namespace_path)
        if namespace is None or not namespace.is_known or self._tasks.nursery is None:
            return None
        topic = namespace.topic(name)
        return Held(self, namespace, name, topic) if topic is None or topic.known else None

    async def load(self, name: TopicName) -> Held:
        """Read unknown policies; return a function that gives the topic's effective policies at each call.

        The function answers from memory and never raises. Raises MetadataUnavailableError."""
        namespace = self._namespaces.get(name.namespace_path)
        if namespace is None or not namespace.is_known or self._tasks.nursery is None:
            namespace = await self._known(name.namespace_name)
        topic = namespace.topic(name)
        while topic is not None and not topic.known:
            refreshes = namespace.refreshes
            own = await self._read(topic.path)
            if refreshes == namespace.refreshes:
                topic.own, topic.known = own, True
        return Held(self, namespace, name, topic)

    async def config_of(self, log_name: str) -> Callable[[], LogConfig]:
        """Load the policies of the topic whose managed ledger has that name; see `load`."""
        return await self.load(TopicName.from_managed_ledger_path(log_name))

    # For the admin API

    async def get(self, name: TopicName) -> Json | None:
        """Return the topic's own policies, as currently stored. Raises MetadataUnavailableError."""
        return await self._read(topic_path(name))

    async def update(self, name: TopicName, change: Callable[[Json], Json]) -> None:
        """Change the topic's own policies; unknown fields are kept.

        This broker uses the change when the call returns, the others a moment later. `change` may be called again, and
        may raise. Raises MetadataUnavailableError."""
        path = topic_path(name)
        folder = paths.parent(path)
        with translated(path):
            while True:
                try:
                    node = await self._metadata.get(path)
                    if node is None:
                        made = change({"isGlobal": False})
                        await self._metadata.create(path, encode_json(made), make_parents=True)
                    else:
                        made = change(decode(node.value))
                        touch = Put(path=folder, value=b"", version=ANY_VERSION)
                        await self._metadata.multi(
                            [Put(path=path, value=encode_json(made), version=node.version), touch]
                        )
                    break
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue  # another broker changes it too
        self._note(name, made)

    async def delete(self, name: TopicName) -> None:
        """Delete the policies of a deleted topic; none is no error. Raises MetadataUnavailableError."""
        path = topic_path(name)
        with translated(path):
            try:
                await self._metadata.delete(path)
            except NoNodeError:
                pass
        self._note(name, None)

    async def delete_namespace(self, namespace: NamespaceName) -> None:
        """Delete all policies of a deleted namespace. Raises MetadataUnavailableError."""
        folder = f"{ROOT}/{namespace}/persistent"
        with translated(folder):
            while True:
                try:
                    names = await self._metadata.children(folder)
                except NoNodeError:
                    return
                ops: list[Op] = [Delete(path=paths.join(folder, each)) for each in names]
                try:
                    await self._metadata.multi([*ops, Delete(path=folder)])
                    return
                except (NoNodeError, NotEmptyError):
                    continue  # another broker changes them too

    # Watching

    def _note(self, name: TopicName, own: Json | None) -> None:
        """Keep a value that was just stored."""
        namespace = self._namespaces.get(name.namespace_path)
        if namespace is None:
            return
        path = topic_path(name)
        namespace.notes += 1
        topic = namespace.topics.get(path)
        if topic is not None:
            topic.own = own
        if namespace.having is not None:
            namespace.now_having(namespace.having - {path} if own is None else namespace.having | {path})
        topic = namespace.gained.get(path)
        if topic is not None:
            topic.own, topic.known = own, True

    async def _known(self, name: NamespaceName) -> _Namespace:
        key = str(name)
        namespace = self._namespaces.get(key)
        if self._tasks.nursery is None:
            # Not watched: the value is as old as this read.
            if namespace is None:
                namespace = self._namespaces[key] = _Namespace(name, watched=False)
            await self._refresh(namespace)
            return namespace
        if namespace is None or not namespace.watched:
            namespace = self._namespaces[key] = _Namespace(name, watched=True)
            self._tasks.nursery.start_soon(self._watch, key, namespace, name=f"policies of {name}")
        await namespace.ready.wait()
        if namespace.forgotten:
            return await self._known(name)  # the namespace was recreated
        if self._namespaces.get(key) is not namespace:
            raise MetadataUnavailableError(f"policies of {name} cannot be read now")
        return namespace

    async def _watch(self, key: str, namespace: _Namespace) -> None:
        """Watch two nodes, with one reader."""
        changed = trio.Event()

        async def listen(watch: Watch) -> None:
            nonlocal changed
            while True:
                await watch.next()
                namespace.reports += 1
                changed.set()

        watches = [self._metadata.watch(path) for path in (namespace.path, namespace.folder)]
        try:
            async with trio.open_nursery() as nursery:
                for watch in watches:
                    nursery.start_soon(listen, watch)
                while True:
                    try:
                        await self._refresh(namespace)
                        first = not namespace.ready.is_set()
                        namespace.ready.set()
                        self.on_change(key)
                        if not first and namespace.own is None and not namespace.uses:
                            namespace.forgotten = True  # it was deleted, and no topic of it is loaded
                            break
                        await changed.wait()
                    except MetadataUnavailableError as error:
                        if not namespace.ready.is_set():
                            break
                        log.warning("policies not read", namespace=key, reason=str(error))
                        with trio.move_on_after(RETRY_S):
                            await changed.wait()
                    changed = trio.Event()
                nursery.cancel_scope.cancel()
        except* SessionExpiredError:
            pass  # the store has failed, and the broker with it
        finally:
            for watch in watches:
                watch.close()
            if namespace.forgotten or not namespace.ready.is_set():
                if self._namespaces.get(key) is namespace:
                    del self._namespaces[key]
                namespace.ready.set()

    async def _refresh(self, namespace: _Namespace) -> None:
        """Read the policies of topics that have any, which the folder lists. Others, the majority, cost nothing."""
        namespace.refreshes += 1
        reports = namespace.reports
        namespace.own = await self._read(namespace.path)
        notes = namespace.notes
        having = await self._topics_having(namespace)
        if notes == namespace.notes:  # otherwise the watch reports the change
            namespace.now_having(having)
        for count, topic in enumerate(list(namespace.topics.values()), 1):
            topic.own = await self._read(topic.path) if topic.path in having else None
            topic.known = True
            if not count % NAMES_IN_STEP:
                await trio.lowlevel.checkpoint()
        namespace.reports_read = reports

    async def _topics_having(self, namespace: _Namespace) -> frozenset[str]:
        """Return the paths of the topics of a namespace that have policies of their own."""
        with translated(namespace.folder):
            try:
                names = await self._metadata.children(namespace.folder)
            except NoNodeError:
                return frozenset()
        return frozenset([paths.join(namespace.folder, each) async for each in sliced(names, NAMES_IN_STEP)])

    async def _read(self, path: str) -> Json | None:
        with translated(path):
            node = await self._metadata.get(path)
        return None if node is None else decode(node.value)


def _ignore(namespace: str) -> None:
    pass
