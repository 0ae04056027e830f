"""The topics this broker has loaded, and how one gets loaded: once, however many ask at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from cachetools import TTLCache

from broker.errors import BrokerError, MetadataUnavailableError, ServiceNotReadyError, TopicNotFoundError
from broker.topic import Topic
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError, ManagedLedgerFencedError, NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.names import TopicName

if TYPE_CHECKING:
    from broker.server import Broker

log = get_logger(__name__)

NAMESPACES_MAX = 10_000
NAMESPACE_TTL_S = 5.0
"""Seconds for which a namespace that was deleted may still be taken to exist."""


class _Loading:
    """A topic on its way: those who want it wait here."""

    def __init__(self, create: bool) -> None:
        self.create = create
        """Whether it may be made if it does not exist."""
        self.done = trio.Event()
        self.topic: Topic | None = None
        self.error: BrokerError | None = None


class Topics:
    """Loaded topics by full name."""

    def __init__(self, broker: Broker, factory: ManagedLedgerFactory, metadata: MetadataStore) -> None:
        self._broker = broker
        self._factory = factory
        self._metadata = metadata
        self._loaded: dict[str, Topic] = {}
        self._loading: dict[str, _Loading] = {}
        self._closing: dict[str, trio.Event] = {}
        self._stopping = False
        self._namespaces: TTLCache[str, None] = TTLCache(NAMESPACES_MAX, NAMESPACE_TTL_S, timer=trio.current_time)
        """Those that were there a moment ago."""

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    def namespace_is_known(self, name: TopicName) -> bool:
        """Whether the namespace is known to exist, without asking."""
        return name.namespace_path in self._namespaces

    async def check_namespace(self, name: TopicName) -> None:
        """TopicNotFoundError if the namespace does not exist: what the clients expect, and expect first.
        MetadataUnavailableError."""
        if self.namespace_is_known(name):
            return
        try:
            node = await self._metadata.get(f"/admin/policies/{name.namespace_path}")
        except MetadataError as error:
            raise MetadataUnavailableError(f"namespace {name.namespace_path}: {error}") from error
        if node is None:
            raise TopicNotFoundError(f"namespace {name.namespace_path} does not exist")
        self._namespaces[name.namespace_path] = None

    async def get(self, name: TopicName, *, create: bool = True) -> Topic:
        """The topic, loaded if need be. TopicNotFoundError, ServiceNotReadyError, MetadataUnavailableError."""
        full = name.full
        create = create and self._broker.options.allow_auto_topic_creation
        checked = False
        while True:
            if (topic := self._loaded.get(full)) is not None and not topic.closing:
                return topic
            if self._stopping:
                raise ServiceNotReadyError("the broker is stopping")
            if (closing := self._closing.get(full)) is not None:
                with trio.move_on_after(self._broker.options.topic_load_timeout_s) as scope:
                    await closing.wait()
                if scope.cancelled_caught:
                    raise ServiceNotReadyError(f"topic {full} is still being closed")
                continue
            loading = self._loading.get(full)
            if loading is None:
                if not checked:
                    await self.check_namespace(name)
                    checked = True
                    continue
                loading = self._loading[full] = _Loading(create)
                self._broker.nursery.start_soon(self._load, name, loading, name=f"load {full}")
            with trio.move_on_after(self._broker.options.topic_load_timeout_s) as scope:
                await loading.done.wait()
            if scope.cancelled_caught:
                raise ServiceNotReadyError(f"topic {full} is still being loaded")
            if loading.error is None:
                assert loading.topic is not None, "a load ends with a topic or an error"
                return loading.topic
            if isinstance(loading.error, TopicNotFoundError) and create and not loading.create:
                continue  # whoever asked first would not have it made
            raise type(loading.error)(*loading.error.args)

    async def _load(self, name: TopicName, loading: _Loading) -> None:
        full = name.full
        try:
            ledger = await self._factory.open(name.managed_ledger_path, create=loading.create)
            if not ledger.is_usable:
                # Taken over or closed since: nobody would tell us any more.
                raise ManagedLedgerFencedError(f"{full} was lost while it was being loaded")
            topic = Topic(self._broker, name, ledger, self._broker.nursery)
            topic.restore_subscriptions()
            self._loaded[full] = topic
            loading.topic = topic
            log.debug("topic loaded", topic=full, last_confirmed=str(ledger.last_confirmed))
        except NoSuchManagedLedgerError:
            loading.error = TopicNotFoundError(f"topic {full} does not exist, and may not be created")
        except (ManagedLedgerError, CursorError) as error:
            log.warning("topic not loaded", topic=full, error=str(error))
            loading.error = ServiceNotReadyError(f"topic {full}: {error}")
        except Exception as error:
            log.error("topic not loaded", topic=full, error=repr(error), exc_info=True)
            loading.error = ServiceNotReadyError(f"topic {full} could not be loaded")
        finally:
            if loading.topic is None and loading.error is None:
                loading.error = ServiceNotReadyError(f"loading topic {full} was broken off")
            del self._loading[full]
            loading.done.set()

    def close_soon(self, topic: Topic) -> None:
        """Take a topic down: it has another owner, its state is in doubt, or the broker stops. The next lookup reloads it."""
        full = topic.name.full
        if topic.closing or full in self._closing:
            return
        topic.closing = True
        self._closing[full] = trio.Event()
        self._broker.nursery.start_soon(self._close, topic, name=f"close {full}")

    async def _close(self, topic: Topic) -> None:
        full = topic.name.full
        try:
            await topic.close()
        except Exception as error:
            log.error("topic not closed cleanly", topic=full, error=repr(error), exc_info=True)
        finally:
            if self._loaded.get(full) is topic:
                del self._loaded[full]
            self._closing.pop(full).set()

    async def close_all(self) -> None:
        """Graceful stop: clients are told, cursors and ledgers closed; what fails is left to the next start's recovery."""
        self._stopping = True
        for topic in self.loaded():
            self.close_soon(topic)
        while self._closing:
            await next(iter(self._closing.values())).wait()
