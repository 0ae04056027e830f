"""The loaded topics of this broker, and their loading: once, however many requests arrive at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from itertools import takewhile

import trio

from broker.background import see_through
from broker.config import BrokerOptions
from broker.context import Context
from broker.errors import (
    BrokerError,
    NotAllowedError,
    ServiceNotReadyError,
    TopicExistsError,
    TopicNotFoundError,
    translated,
)
from broker.ownership.bundles import Bundle
from broker.ownership.local import Owning
from broker.slices import run_through, sliced
from broker.topics.compaction.leftovers import delete_log
from broker.topics.left_over import delete_folders, delete_logs
from broker.topics.life.closing import close_in_order
from broker.topics.life.first_use import FirstUse
from broker.topics.life.following import PolicyFollowing
from broker.topics.loader import HOLD_S, StoredSnapshots, TopicLoader, has_node
from broker.topics.loading import THEN_MAX, Loaders, Loading
from broker.topics.namespace_check import NamespaceCheck
from broker.topics.partitioned_topics import PartitionedTopics, sorted_topics_in
from broker.topics.policies import Held, TopicPolicies
from broker.topics.rates.broker_rates import BrokerRates
from broker.topics.schemas.registry import Schemas
from broker.topics.subscription_cursors import Pairs
from broker.topics.system_names import is_system_topic
from broker.topics.takeover import Takeover
from broker.topics.topic import Topic
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError, NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.ledger_list import new_list
from managed_ledger.stored_list import log_path
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.metrics import Histogram
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.errors import again

log = get_logger(__name__)

TOPICS_IN_STEP = 100
"""Topics that a walk over all of them looks at, or closes, before other tasks run."""
_DONE = object()


def _in_order(namespace: str, components: list[str], system: bool) -> list[TopicName]:
    found = sorted_topics_in(namespace, components)
    return found if system else [name for name in found if not is_system_topic(name)]


class Topics:
    """Loaded topics by full name."""

    def __init__(
        self,
        context: Context,
        factory: ManagedLedgerFactory,
        metadata: MetadataStore,
        ownership: Owning,
        policies: TopicPolicies,
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._factory = factory
        self._metadata = metadata
        self._policies = policies
        self._loaded: dict[str, Topic] = {}
        self._loading: dict[str, Loading] = {}
        self._loaders = Loaders(context, self._load)
        self._closing: dict[str, trio.Event] = {}
        """Topics that are being closed or deleted."""
        self.load_times = Histogram()
        """Milliseconds of each load that succeeded."""
        self.loads_failed = 0
        self.delete_acks: Callable[[TopicName, Sequence[str]], Awaitable[None]] | None = None  # in transactions
        self._stopping = False
        self.namespaces = NamespaceCheck(metadata)
        self.first_use = FirstUse(metadata, policies, context.options, self.namespaces, context.world.clock)
        self.partitioned = PartitionedTopics(metadata, partitions_max=max(context.options.partitions_per_topic_max, 0))
        self.schemas = Schemas(context, metadata, factory.ledgers, factory.config, policies)
        self.takeover = Takeover(accept=context.options.accept_unsupported_policies)
        self.rates = rates = BrokerRates(context.options, context.nursery)
        self.following = PolicyFollowing(context, policies, rates, self.loaded)
        self._loader = TopicLoader(
            context,
            factory,
            metadata,
            ownership,
            policies,
            rates,
            self.partitioned,
            self.takeover,
            takes_topics=self.namespaces.takes_topics,
            first_use=self.first_use,
            close_soon=self.close_soon,
        )

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    @property
    def options(self) -> BrokerOptions:
        return self._context.options

    def keep_snapshots(self, store: Callable[[], StoredSnapshots]) -> None:
        """Keep snapshots of transactions in what `store` makes."""
        self._loader.snapshots = store

    @property
    def count(self) -> int:
        return len(self._loaded)

    def find(self, name: TopicName) -> Topic | None:
        """Return the topic, if it is loaded and open."""
        topic = self._loaded.get(name.full)
        return None if topic is None or topic.closing else topic

    # Existing topics

    async def exists(self, name: TopicName) -> bool:
        """Return whether the topic, or partition, has a log. Raises MetadataUnavailableError."""
        return name.full in self._loaded or await self._has(log_path(name.managed_ledger_path))

    async def names(self, namespace: NamespaceName, *, system: bool = True) -> list[TopicName]:
        """Return topics that have a log, partitions one by one, in order; `system`: with those of the servers
        themselves. Raises MetadataUnavailableError."""
        with translated(f"namespace {namespace}"):
            try:
                components = await self._metadata.children(log_path(f"{namespace}/persistent"))
            except NoNodeError:
                return []
        # In a worker: reading and sorting 10,000 names takes longer than the event loop may be blocked.
        read = partial(_in_order, str(namespace), components, system)
        return await self._context.world.offload.run(read, name="names of topics")

    async def _has(self, path: str) -> bool:
        return await has_node(self._metadata, path)

    def partitions_at_once(self, name: TopicName, *, create: bool) -> int | None:
        """Return `partitions` from memory; None: ask."""
        count = 0 if name.partition >= 0 else self.partitioned.known(name)
        if count == 0:
            rule = self.first_use.at_once(name) if create else None
            if (rule is None or not rule.allow or rule.made) and name.full not in self._loaded:
                return None
        return count

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """Return how many partitions a client is to see; 0: one topic, which may have to be created on its first use.
        With `create`, a missing topic is created here if the configuration makes topics partitioned. Raises
        TopicNotFoundError (it may not be created), BeingDeletedError, MetadataUnavailableError."""
        if name.partition < 0 and (count := await self.partitioned.get(name)):
            return count
        rule = await self.first_use.rule(name) if create else None
        create = rule is not None and rule.allow
        if rule is not None and create and not rule.made:
            return 0
        if await self.exists(name):
            return 0
        if rule is None or not create:
            raise TopicNotFoundError(f"topic {name.full} does not exist, and may not be created")
        if name.partition >= 0:
            return 0  # a partition is created with its topic, and refused otherwise
        try:
            async with self.partitioned.changing(name):
                await self.namespaces.takes_topics(name)
                await self.first_use.check_room(name, rule.made)
                await self.partitioned.create(name, rule.made)
        except TopicExistsError:
            pass  # another client created it meanwhile, of one kind or the other
        return await self.partitioned.get(name)

    # Loading

    async def get(self, name: TopicName, *, create: bool = True) -> Topic:
        """Return the topic, loaded if needed.

        Raises TopicNotFoundError, NotOwnerError, ServiceNotReadyError, MetadataUnavailableError."""
        full = name.full
        if (topic := self.find(name)) is not None:
            return topic
        create = create and not self._stopping and (await self.first_use.rule(name)).allow
        checked = False
        while True:
            if (topic := self._loaded.get(full)) is not None and not topic.closing:
                return topic
            if self._stopping:
                raise ServiceNotReadyError("the broker is stopping")
            if (closing := self._closing.get(full)) is not None:
                with trio.move_on_after(self._context.options.topic_load_timeout_s) as scope:
                    await closing.wait()
                if scope.cancelled_caught:
                    raise ServiceNotReadyError(f"topic {full} is still being closed")
                continue
            loading = self._loading.get(full)
            if loading is None:
                if not checked:
                    await self.namespaces.exists(name)
                    checked = True
                    continue
                loading = self._begin(name, create)
            with trio.move_on_after(self._context.options.topic_load_timeout_s) as scope:
                await loading.done.wait()
            if scope.cancelled_caught:
                raise ServiceNotReadyError(f"topic {full} is still being loaded")
            if loading.error is None:
                assert loading.topic is not None, "a load ends with a topic or an error"
                return loading.topic
            if isinstance(loading.error, TopicNotFoundError) and create and not loading.create:
                continue  # the first caller did not allow creation
            raise again(loading.error) from loading.error

    def when_loaded(self, name: TopicName, held: Held, then: Callable[[Topic | BrokerError], None]) -> bool:
        """Call `then` with the topic in this step, or when it is loaded, or with the error if it cannot be.
        Cheaper than a task that waits for `get`. `held`: its policies. Return False if more than that may have to be
        waited for: `get` does so, and `then` is not called. `then` must not raise."""
        full = name.full
        if (topic := self._loaded.get(full)) is not None and not topic.closing:
            then(topic)
            return True
        if self._stopping or full in self._closing:
            return False
        if (rule := self.first_use.at_once(name, held)) is None:
            return False
        create = rule.allow
        loading = self._loading.get(full)
        if loading is None:
            if not self.namespaces.is_known(name):
                return False
            loading = self._begin(name, create)
            since = loading.begun
        elif (create and not loading.create) or len(loading.then) >= THEN_MAX:
            return False
        else:
            since = trio.current_time()
        loading.then.append((since, then))
        return True

    def refuse_late(self) -> None:
        """Answer callers of `when_loaded` that have waited for too long. Called periodically."""
        begun_max = trio.current_time() - self._context.options.topic_load_timeout_s
        for full, loading in list(takewhile(lambda item: item[1].begun <= begun_max, self._loading.items())):
            loading.answer(ServiceNotReadyError(f"topic {full} is still being loaded"), begun_max)

    def _begin(self, name: TopicName, create: bool) -> Loading:
        loading = self._loading[name.full] = Loading(create)
        self._loaders.put(name, loading)
        return loading

    async def _load(self, name: TopicName, loading: Loading) -> None:
        full = name.full
        try:
            topic = await self._loader.load(name, loading, loading.begun + HOLD_S)
            self._loaded[full] = topic
            loading.topic = topic
            self.load_times.observe((trio.current_time() - loading.begun) * 1000)
            log.debug("topic loaded", topic=full, last_confirmed=topic.ledger.last_confirmed)
        except NoSuchManagedLedgerError:
            loading.error = TopicNotFoundError(f"topic {full} does not exist, and may not be created")
        except BrokerError as error:
            loading.error = error.with_traceback(None)  # which has this frame
        except (ManagedLedgerError, CursorError) as error:
            log.warning("topic not loaded", topic=full, reason=str(error))
            loading.error = ServiceNotReadyError(f"topic {full}: {error}")
        except Exception as error:
            log.error("topic not loaded", topic=full, reason=repr(error), exc_info=True)
            loading.error = ServiceNotReadyError(f"topic {full} could not be loaded")
        finally:
            if loading.topic is None and loading.error is None:
                loading.error = ServiceNotReadyError(f"loading of topic {full} was interrupted")
            self.loads_failed += loading.topic is None
            del self._loading[full]
            loading.settle()

    async def create(self, name: TopicName, properties: Pairs = ()) -> None:
        """Create the log of a topic or partition, with its properties, without loading it. Raises TopicExistsError,
        NotAllowedError (a partition of no such partitioned topic), BeingDeletedError, MetadataUnavailableError."""
        async with self.partitioned.changing(name.partitioned):
            await self.namespaces.takes_topics(name)
            await self.first_use.check_room(name)
            count = await self.partitioned.get(name.partitioned)
            if name.partition < 0 and count:
                raise TopicExistsError(f"topic {name.full} exists, and is partitioned")
            if name.partition >= count and name.partition >= 0:
                raise NotAllowedError(
                    f"{name.partitioned.full} has {count} partitions: {name.full} cannot be one of them"
                )
            path = log_path(name.managed_ledger_path)
            with translated(name.full):
                try:
                    await self._metadata.create(path, new_list(properties), make_parents=True)
                except NodeExistsError as error:
                    raise TopicExistsError(f"topic {name.full} exists") from error

    # Closing and deleting

    def lose(self, bundle: Bundle) -> None:
        """Drop the topics of a bundle that another broker has, including those being closed. Nothing is written.
        If there are many, the first go in this step and the rest in later steps."""
        steps = self._lose(bundle)
        if next(steps, _DONE) is not _DONE:
            self._context.nursery.start_soon(run_through, steps, name=f"lose {bundle}")

    def _lose(self, bundle: Bundle) -> Generator[None, None, None]:
        """Drop topics, a step of the event loop per element."""
        for count, topic in enumerate(self.loaded(), 1):
            if bundle.has(topic.name) and self._loaded.get(topic.name.full) is topic:
                log.warning("topic has another owner", topic=topic.name.full)
                topic.abandon()
                del self._loaded[topic.name.full]
            if not count % TOPICS_IN_STEP:
                yield

    async def unload(self, bundle: Bundle, next_owner: str = "") -> None:
        """Close the bundle's topics, and wait for it.

        Clients are sent to `next_owner`, a broker's URL, if it is known. The bundle must be disabled, so that a topic
        being loaded is not opened any more, or is closed."""
        waiting = True
        while waiting:
            # A snapshot: topics not in it are being loaded, and check the bundle again when they are.
            loaded, loading = self.loaded(), list(self._loading.items())
            async for topic in sliced(loaded, TOPICS_IN_STEP):
                if bundle.has(topic.name):
                    topic.next_owner = next_owner
                    self.close_soon(topic)
            await trio.lowlevel.checkpoint()  # the rest of the last slice and the next one would be one step
            under_way = [(full, each.done) for full, each in loading] + list(self._closing.items())
            mine = [done async for full, done in sliced(under_way, TOPICS_IN_STEP) if bundle.has(TopicName.parse(full))]
            waiting = bool(mine)
            for done in mine:
                await done.wait()

    def close_soon(self, topic: Topic) -> None:
        """Close a topic in the background: it moved, its state is uncertain, the broker stops. A lookup reloads it."""
        if self._begins_to_close(topic):
            self._context.nursery.start_soon(self._close, topic, name=f"close {topic.name.full}")

    def _begins_to_close(self, topic: Topic) -> bool:
        if topic.closing or topic.name.full in self._closing:
            return False
        topic.closing = True
        self._closing[topic.name.full] = trio.Event()
        return True

    async def _close(self, topic: Topic) -> None:
        full = topic.name.full
        try:
            await topic.close()
        except Exception as error:
            log.error("topic not closed cleanly", topic=full, reason=repr(error), exc_info=True)
        finally:
            if self._loaded.get(full) is topic:
                del self._loaded[full]
            self._closing.pop(full).set()

    def check_unused(self, name: TopicName) -> None:
        """Raise TopicBusyError if producers or consumers are connected."""
        if (topic := self._loaded.get(name.full)) is not None:
            topic.check_unused()

    async def delete(
        self, name: TopicName, *, force: bool, check: Callable[[Topic], None] = Topic.check_unused
    ) -> None:
        """Close the topic, or partition, and delete it: its log with every ledger, and its subscriptions.

        Clients that arrive meanwhile wait, and find nothing of it. With `force` producers and consumers are
        disconnected; they may create a new one. Raises TopicBusyError, TopicNotFoundError, NotOwnerError,
        ServiceNotReadyError (incomplete: delete it again)."""
        full = name.full
        await self._ownership.check(name)
        with trio.move_on_after(self._context.options.topic_load_timeout_s) as scope:
            while not self._stopping:
                if (closing := self._closing.get(full)) is not None:
                    await closing.wait()
                elif (loading := self._loading.get(full)) is not None:
                    await loading.done.wait()
                else:
                    break
        if self._stopping or scope.cancelled_caught:
            raise ServiceNotReadyError(f"topic {full} is being loaded or closed")
        topic = self._loaded.get(full)
        if topic is not None:
            if not force:
                check(topic)
            topic.closing = True
        self._closing[full] = trio.Event()

        async def delete() -> None:
            try:
                if topic is not None:
                    try:
                        await self.first_use.tombstones.bury(topic)
                    finally:
                        await topic.close()
                # A client that had the topic a moment ago adds no schema from here on. Those of a partition go with
                # its topic.
                await (self.forget(name) if name.partition < 0 else self.schemas.settle(name))
                names = [] if self.delete_acks is None else await self.partitioned.subscriptions(name)
                await delete_log(self._factory, self._metadata, name, None if topic is None else topic.compaction)
                if self.delete_acks is not None:
                    await self.delete_acks(name, names)
                log.info("topic deleted", topic=full)
            except NoSuchManagedLedgerError as error:
                raise TopicNotFoundError(f"topic {full} does not exist") from error
            except (ManagedLedgerError, CursorError) as error:
                raise ServiceNotReadyError(f"topic {full} is not deleted yet: {error}") from error
            finally:
                if topic is not None and self._loaded.get(full) is topic:
                    del self._loaded[full]
                self._closing.pop(full).set()

        await see_through(self._context.nursery, delete, name=f"delete {full}")

    async def forget(self, name: TopicName) -> None:
        """Delete what is stored about a topic that is being deleted, beside its log: its policies and schemas. Those
        of partitions are their topic's."""
        await self._policies.delete(name)
        await self.schemas.delete_all(name)

    async def delete_left_over(self, namespace: NamespaceName) -> None:
        """See `Administration.delete_left_over`."""
        await delete_logs(await self.names(namespace), self._factory, self._metadata)
        await self.schemas.delete_namespace(namespace)
        await delete_folders(namespace, self._metadata)

    async def close_all(self) -> None:
        """Stop gracefully: notify clients, close cursors and ledgers. The next start recovers what fails."""
        self._stopping = self._loader.stopping = True
        await close_in_order(self._loaded, self._close_now)
        for closed in list(self._closing.values()):
            await closed.wait()

    async def _close_now(self, topic: Topic) -> None:
        if self._begins_to_close(topic):
            await self._close(topic)
