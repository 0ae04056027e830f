"""Namespaces of which topic lists are watched: one watch of the metadata for each, however many clients look.

Topics are created and deleted by any broker of the cluster: each has a node in the metadata, and the store reports a
change of their list here. The list is read again then, compared with the one before, and each pattern is told what
concerns it. Comparing and matching are done in a worker. After a lost connection to the metadata the store reports a
change, so nothing that happened meanwhile is missed.

A change is read after `PAUSE_S`, or later if reading takes long: so topics that are made by the thousand are read a few
times, not thousands of times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import trio

from broker.connections.topic_lists.views import Update, View, change, view_of
from broker.context import Context
from broker.errors import BrokerError, NotAllowedError, ServiceNotReadyError
from managed_ledger.stored_list import log_path
from quire.metadata.errors import MetadataError, SessionExpiredError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.names import PERSISTENT, NamespaceName, TopicName
from quire.world.backoff import Backoff

log = get_logger(__name__)

PAUSE_S: Final = 0.05
PAUSE_PER_READ: Final = 10
"""Pause after a read, in times of what it took."""
RETRY_MIN_S, RETRY_MAX_S = 0.5, 10.0
NAMESPACES_MAX: Final = 1000
"""Namespaces that are watched at a time by one broker."""
PATTERNS_MAX: Final = 100
"""Patterns of one namespace."""
NAMES_MAX: Final = 2_000_000
"""Names in all views of one broker: 16 bytes each, as the texts are shared."""

T = TypeVar("T")
Told = Callable[[Update], None]
Names = Callable[[NamespaceName], Awaitable[list[TopicName]]]


class WatchedPattern:
    """A pattern in a namespace, and the functions to call with its updates."""

    __slots__ = ("told", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.told: dict[Told, None] = {}


class _Changed(NamedTuple):
    topics: dict[str, TopicName]
    views: dict[str, tuple[View, list[Update]]]


class WatchedNamespace:
    """One namespace. All but `run` is synchronous, or is called by one task at a time."""

    def __init__(self, namespace: NamespaceName) -> None:
        self.namespace = namespace
        self.patterns: dict[str, WatchedPattern] = {}
        self.topics: dict[str, TopicName] = {}
        self.ready = trio.Event()
        """Set when `topics` is known."""
        self.scope = trio.CancelScope()
        self.turn = trio.Lock()
        """Held while views are made or changed, so that none is made from a list that is being replaced."""
        self.users = 0
        """Watchers, and those being made."""


class TopicListWatching:
    """The watched namespaces of one broker."""

    def __init__(self, context: Context, metadata: MetadataStore, names: Names) -> None:
        """Take the function that returns the topics of a namespace; it raises BrokerError."""
        self._context = context
        self._metadata = metadata
        self._names = names
        self._namespaces: dict[NamespaceName, WatchedNamespace] = {}

    @property
    def count(self) -> int:
        """Return the number of watched namespaces."""
        return len(self._namespaces)

    async def add(
        self,
        namespace: NamespaceName,
        pattern: str,
        told: Told,
        encode: Callable[[View], T],
        begin: Callable[[T], None],
    ) -> None:
        """Call `begin` with what `encode` made of the view of a pattern, in a worker; and `told` with each change of
        the view from then on, until `remove`.

        Raises NotAllowedError (a bound is reached, or the pattern cannot be matched), ServiceNotReadyError."""
        watched = self._namespaces.get(namespace)
        if watched is None:
            if len(self._namespaces) >= NAMESPACES_MAX:
                raise NotAllowedError(f"topic lists of {NAMESPACES_MAX} namespaces are watched on this broker already")
            watched = self._namespaces[namespace] = WatchedNamespace(namespace)
            self._context.nursery.start_soon(self._run, watched, name=f"watch topics of {namespace}")
        watched.users += 1
        try:
            with trio.move_on_after(self._context.options.topic_load_timeout_s) as scope:
                await watched.ready.wait()
            if scope.cancelled_caught:
                raise ServiceNotReadyError(f"the topics of {namespace} cannot be read now")
            async with watched.turn:
                found = watched.patterns.get(pattern) or await self._view(watched, pattern)
                try:
                    job = partial(encode, found.view)
                    begin(await self._context.world.offload.run(job, name="answer with a list of topics"))
                    found.told[told] = None
                    watched.patterns[pattern] = found  # its last watcher may have gone; the view is current
                finally:
                    self._drop_unused(watched, pattern)
        except BaseException:
            self._leave(watched)
            raise

    async def _view(self, watched: WatchedNamespace, pattern: str) -> WatchedPattern:
        if len(watched.patterns) >= PATTERNS_MAX:
            raise NotAllowedError(f"{PATTERNS_MAX} patterns are watched in {watched.namespace} already")
        job = partial(view_of, pattern, list(watched.topics.values()))
        view = await self._context.world.offload.run(job, name="list of topics")
        kept = sum(len(each.view.names) for other in self._namespaces.values() for each in other.patterns.values())
        if kept + len(view.names) > NAMES_MAX:
            raise NotAllowedError(f"{kept} topics are watched on this broker already")
        found = watched.patterns[pattern] = WatchedPattern(view)
        return found

    def remove(self, namespace: NamespaceName, pattern: str, told: Told) -> None:
        """End what `add` began."""
        watched = self._namespaces[namespace]
        found = watched.patterns[pattern]
        del found.told[told]
        self._drop_unused(watched, pattern)
        self._leave(watched)

    @staticmethod
    def _drop_unused(watched: WatchedNamespace, pattern: str) -> None:
        found = watched.patterns.get(pattern)
        if found is not None and not found.told:
            del watched.patterns[pattern]

    def _leave(self, watched: WatchedNamespace) -> None:
        watched.users -= 1
        if not watched.users:
            watched.scope.cancel()
            if self._namespaces.get(watched.namespace) is watched:
                del self._namespaces[watched.namespace]

    async def _run(self, watched: WatchedNamespace) -> None:
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S, self._context.world.rng)
        watch = self._metadata.watch(log_path(f"{watched.namespace}/{PERSISTENT}"))
        try:
            with watched.scope:
                while True:
                    begun = trio.current_time()
                    try:
                        await self._read(watched)
                        backoff.reset()
                    except BrokerError as error:
                        log.info("topics not read", namespace=str(watched.namespace), reason=str(error))
                        await trio.sleep(backoff.next())
                        continue
                    took = trio.current_time() - begun
                    await watch.next()
                    await trio.sleep(PAUSE_S + PAUSE_PER_READ * took)
        except SessionExpiredError:
            log.debug("session lost while topics were watched", namespace=str(watched.namespace))
        except MetadataError as error:
            log.warning("topics not watched any more", namespace=str(watched.namespace), reason=str(error))
        finally:
            watch.close()

    async def _read(self, watched: WatchedNamespace) -> None:
        """Read the list, and tell the watchers what has changed. Raises BrokerError."""
        names = await self._names(watched.namespace)
        async with watched.turn:
            views = {pattern: each.view for pattern, each in watched.patterns.items()}
            job = partial(_changed, watched.topics, names, views)
            found = await self._context.world.offload.run(job, name="change of a list of topics")
            watched.topics = found.topics
            watched.ready.set()
            for pattern, (view, updates) in found.views.items():
                current = watched.patterns.get(pattern)
                if current is None or current.view is not views[pattern]:
                    continue  # its last watcher has gone meanwhile
                current.view = view
                for told in list(current.told):
                    for update in updates:
                        if told in current.told:
                            told(update)
                            await trio.lowlevel.checkpoint()


def _changed(before: Mapping[str, TopicName], names: Sequence[TopicName], views: Mapping[str, View]) -> _Changed:
    topics = {name.full: name for name in names}
    added = [name for full, name in topics.items() if full not in before]
    removed = [name for full, name in before.items() if full not in topics]
    if not added and not removed:
        return _Changed(topics, {})
    return _Changed(topics, {pattern: change(view, added, removed) for pattern, view in views.items()})
