"""Policies of topics: those of their namespace, and their own. Read once, then watched, so that what holds for a log's
next ledger is known from memory.

    /admin/policies/<t>/<ns>                                    the namespace's
    /admin/local-policies/<t>/<ns>                              the namespace's: bookies that its ledgers may be on
    persistent://<t>/<ns>/__change_events                       the topics' own: see topic_policies.events
    /quire/topic-policies/<t>/<ns>                              how far its owner has got
    /admin/topic-policies/local/<t>/<ns>/persistent/<topic>     the topics' own, as this broker stored them before: each
                                                                counts until the first change of any policies of its
                                                                namespace's topics, which moves all of them

One task per namespace watches these, however many topics there are. While the metadata store, or the owner of the log,
cannot be reached, what was known last stays true.

Source: Pulsar's SystemTopicBasedTopicPoliciesService, MetadataStoreTopicPoliciesService (the nodes). A partition has
the policies of its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import trio

from broker.config import BrokerOptions
from broker.errors import BrokerError, MetadataUnavailableError, ServiceNotReadyError, translated
from broker.ownership.following import Tasks
from broker.ownership.values import Json, is_being_deleted
from broker.topics.policy_values import decode
from broker.topics.topic_policies.known import NAMES_IN_STEP, ROOT, Defaults, Held, NamespaceFields, topic_path
from broker.topics.topic_policies.source import (
    PolicyChanges,
    PolicySource,
    announced_path,
    change_events,
    decode_announced,
    is_change_events,
)
from managed_ledger.config import LogConfig
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from quire.metadata import paths
from quire.metadata.errors import NoNodeError, NotEmptyError, SessionExpiredError
from quire.metadata.store import Delete, MetadataStore, Op, Watch
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

__all__ = ["Held", "TopicPolicies", "topic_path"]

log = get_logger(__name__)

RETRY_S: Final = 1.0
"""Time between attempts to read while something is away that does not announce its return."""
LOGS_S: Final = 15.0
"""Deadline for reading what logs of change events say."""


class TopicPolicies:
    """Policies of topics.

    `run` watches, in a nursery of its owner. Before it runs, and where it does not, every call reads. `default` and
    `options`: the values of broker.conf."""

    def __init__(self, metadata: MetadataStore, default: LogConfig, options: BrokerOptions | None = None) -> None:
        self.defaults = Defaults(default, options or BrokerOptions())
        self.on_change: Callable[[str], None] = _ignore
        """Called with the path of a namespace when its policies, or those of its topics, may have changed."""
        self.source: PolicySource | None = None
        """Source that policies of topics are read from and written to; None: topics have none of their own."""
        self._metadata = metadata
        self._namespaces: dict[str, NamespaceFields] = {}
        self._tasks = Tasks()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the known policies up to date, until cancelled."""
        await self._tasks.run(task_status)

    def options_changed(self, default: LogConfig) -> None:
        """Let the values of broker.conf hold that have changed; `default`: those for ledgers."""
        self.defaults.changed(default)
        for namespace in self._namespaces.values():
            namespace.values = {}
            namespace.changes += 1

    # For logs

    def known(self, name: TopicName) -> Held | None:
        """Return `load` from memory; None: something has to be read."""
        namespace = self._namespaces.get(name.namespace_path)
        if namespace is None or not namespace.is_known or self._tasks.nursery is None:
            return None
        return Held(self.defaults, namespace, name)

    async def load(self, name: TopicName, *, only_namespace: bool = False) -> Held:
        """Read unknown policies; return a function that gives the topic's effective policies at each call.
        `only_namespace`: those of the namespace suffice.

        The function answers from memory and never raises. Raises MetadataUnavailableError."""
        namespace = self._namespaces.get(name.namespace_path)
        if namespace is None or not namespace.is_known or self._tasks.nursery is None:
            # A log of change events has no policies of its own, and the others wait for it.
            only_own = only_namespace or is_change_events(name)
            namespace = await self._known(name.namespace_name, only_own=only_own)
        return Held(self.defaults, namespace, name)

    async def config_of(self, log_name: str) -> Callable[[], LogConfig]:
        """Load the policies of the topic whose managed ledger has that name; see `load`."""
        return await self.load(TopicName.from_managed_ledger_path(log_name))

    # For the admin API

    async def get(self, name: TopicName, *, is_global: bool = False) -> Json | None:
        """Return the topic's own policies, as they are now. Raises MetadataUnavailableError."""
        namespace = await self._fresh(name)
        return namespace.said(name.partitioned.full, is_global=is_global)

    async def fresh(self, name: TopicName) -> Held:
        """Return what `load` does, with the changes that any broker has answered by now."""
        return Held(self.defaults, await self._fresh(name), name)

    async def log_of(self, name: TopicName) -> TopicName:
        """Return the topic whose owner changes the policies of a topic."""
        return change_events(name.namespace_name) if self.source is None else await self.source.log_of(name)

    async def changes_here(self, log_name: TopicName, since: Position | None) -> PolicyChanges:
        """Return what a log says of whose topic this broker is the owner."""
        if self.source is None:
            raise ServiceNotReadyError("policies of topics are not read yet")
        return await self.source.changes_here(log_name, since)

    async def update(self, name: TopicName, change: Callable[[Json], Json], *, is_global: bool = False) -> None:
        """Change the topic's own policies; unknown fields are kept.

        This broker, which has to be the owner of the log, uses the change when the call returns, the others a moment
        later. `change` may be called again, and may raise. Raises NotOwnerError, ServiceNotReadyError,
        MetadataUnavailableError."""
        if self.source is None:
            raise ServiceNotReadyError("policies of topics cannot be changed yet")
        namespace = await self._fresh(name)
        moved = await self.source.update(name, change, is_global=is_global, older=namespace.nodes)
        await self._settle(namespace, moved)

    async def delete(self, name: TopicName) -> None:
        """Delete the policies of a deleted topic; none is no error. Raises BrokerError."""
        if self.source is None or is_change_events(name):
            return  # and nothing can be read of a log that is being deleted
        namespace = await self._fresh(name)
        if name.partitioned.full not in namespace.topics:
            return
        if is_being_deleted(namespace.own or {}):
            return  # its logs go too
        moved = await self.source.delete(name, older=namespace.nodes)
        await self._settle(namespace, moved)

    async def delete_namespace(self, namespace: NamespaceName) -> None:
        """Delete all policies of a deleted namespace. Raises MetadataUnavailableError."""
        with translated(namespace):
            try:
                await self._metadata.delete(announced_path(namespace))
            except NoNodeError:
                pass
            await self._delete_nodes(f"{ROOT}/{namespace}/persistent")

    async def _settle(self, namespace: NamespaceFields, moved: Iterable[str]) -> None:
        """Use what was written, and remove the nodes of topics whose policies are in the log now."""
        with translated(namespace.folder):
            for full in moved:
                try:
                    await self._metadata.delete(topic_path(TopicName.parse(full)))
                except NoNodeError:
                    pass
        await self._refresh(namespace)

    async def _delete_nodes(self, folder: str) -> None:
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

    async def _fresh(self, name: TopicName) -> NamespaceFields:
        """Return what is stored now."""
        namespace = await self._known(name.namespace_name)
        if namespace.watched:
            await self._refresh(namespace)
        return namespace

    async def _known(self, name: NamespaceName, *, only_own: bool = False) -> NamespaceFields:
        key = str(name)
        namespace = self._namespaces.get(key)
        if self._tasks.nursery is None:
            # Not watched: the value is as old as this read.
            if namespace is None:
                namespace = self._namespaces[key] = NamespaceFields(name, watched=False)
            await self._refresh(namespace, only_own=only_own)
            return namespace
        if namespace is None or not namespace.watched:
            namespace = self._namespaces[key] = NamespaceFields(name, watched=True)
            self._tasks.nursery.start_soon(self._watch, key, namespace, name=f"policies of {name}")
        namespace.uses += 1
        try:
            await namespace.own_known.wait()
            if not only_own and not namespace.known and not namespace.forgotten:
                await namespace.looked.wait()
        finally:
            namespace.uses -= 1
        if namespace.forgotten:
            return await self._known(name, only_own=only_own)  # the namespace was recreated
        if self._namespaces.get(key) is not namespace or not (namespace.known or only_own):
            why = f": {namespace.problem}" if namespace.problem else ""
            raise MetadataUnavailableError(f"policies of {name} cannot be read now{why}")
        return namespace

    async def _watch(self, key: str, namespace: NamespaceFields) -> None:
        """Watch the nodes of a namespace, with one reader."""
        changed = trio.Event()

        async def listen(watch: Watch) -> None:
            nonlocal changed
            while True:
                await watch.next()
                changed.set()

        log_node = log_path(change_events(namespace.name).managed_ledger_path)
        watched = (namespace.path, namespace.local_path, namespace.folder, announced_path(namespace.name), log_node)
        watches = [self._metadata.watch(path) for path in watched]
        try:
            async with trio.open_nursery() as nursery:
                for watch in watches:
                    nursery.start_soon(listen, watch)
                while True:
                    try:
                        await self._refresh(namespace)
                        first = not namespace.known
                        namespace.known, namespace.problem = True, ""
                        namespace.looked.set()
                        self.on_change(key)
                        if not first and namespace.own is None and not namespace.uses:
                            namespace.forgotten = True  # it was deleted, and no topic of it is loaded
                            break
                        await changed.wait()
                    except MetadataUnavailableError as error:
                        if not namespace.own_known.is_set():
                            break
                        if namespace.problem != str(error):
                            log.warning("policies not read", namespace=key, reason=str(error))
                        namespace.problem = str(error)
                        namespace.looked.set()
                        namespace.looked = trio.Event()
                        if not namespace.known and not namespace.uses:
                            break
                        with trio.move_on_after(RETRY_S):
                            await changed.wait()
                    changed = trio.Event()
                nursery.cancel_scope.cancel()
        except* SessionExpiredError:
            pass  # the store has failed, and the broker with it
        finally:
            for watch in watches:
                watch.close()
            if namespace.forgotten or not namespace.known:
                if self._namespaces.get(key) is namespace:
                    del self._namespaces[key]
                namespace.own_known.set()
                namespace.looked.set()

    # Reading

    async def _refresh(self, namespace: NamespaceFields, *, only_own: bool = False) -> None:
        """Read what is stored now. Raises MetadataUnavailableError."""
        namespace.own = await self._read(namespace.path)
        namespace.local = await self._read(namespace.local_path)
        namespace.changes += 1
        namespace.own_known.set()
        if only_own:
            return
        async with namespace.turn:
            namespace.with_nodes(await self._read_nodes(namespace))
            if self.source is not None:
                await self._read_logs(namespace, self.source)

    async def _read_nodes(self, namespace: NamespaceFields) -> dict[str, Json]:
        with translated(namespace.folder):
            try:
                names = await self._metadata.children(namespace.folder)
            except NoNodeError:
                return {}
        found: dict[str, Json] = {}
        for count, each in enumerate(names, 1):
            fields = await self._read(paths.join(namespace.folder, each))
            if fields is not None:
                name = TopicName.from_managed_ledger_path(f"{namespace.name}/persistent/{each}")
                found[name.full] = fields
            if not count % NAMES_IN_STEP:
                await trio.lowlevel.checkpoint()
        return found

    async def _read_logs(self, namespace: NamespaceFields, source: PolicySource) -> None:
        with translated(announced_path(namespace.name)):
            node = await self._metadata.get(announced_path(namespace.name))
        announced = {} if node is None else decode_announced(node.value)
        try:
            with trio.fail_after(LOGS_S):
                logs = await source.logs(namespace.name)
                namespace.with_logs(each.local for each in logs)
                for each in logs:
                    await self._read_log(namespace, source, each, announced.get(each.local))
        except (BrokerError, trio.TooSlowError) as error:
            why = f"policies of topics of {namespace.name} cannot be read: {error or 'no answer in time'}"
            if not self.defaults.options.accept_unsupported_policies:
                raise MetadataUnavailableError(why) from error
            log.warning("accepting policies that are not known", namespace=str(namespace.name), reason=why)

    @staticmethod
    async def _read_log(
        namespace: NamespaceFields, source: PolicySource, name: TopicName, announced: Position | None
    ) -> None:
        found = await source.changes(name, namespace.upto(name.local), announced)
        policies, whole = dict(found.policies), found.whole
        while found.more:
            found = await source.changes(name, found.upto, None)
            if found.whole:
                policies, whole = {}, True  # it was taken over meanwhile, and begins elsewhere
            for key, fields in found.policies.items():
                policies.pop(key, None)
                policies[key] = fields
        await namespace.with_changes(name.local, PolicyChanges(whole, found.upto, policies, False))

    async def _read(self, path: str) -> Json | None:
        with translated(path):
            node = await self._metadata.get(path)
        return None if node is None else decode(node.value)


def _ignore(namespace: str) -> None:
    pass
