"""A log of change events in memory, which several brokers on one tree of metadata share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

import trio

from broker.config import BrokerOptions
from broker.ownership.values import Json, encode_json
from broker.topics.policies import TopicPolicies
from broker.topics.topic_policies.events import IS_GLOBAL, key_of, said
from broker.topics.topic_policies.source import PolicyChanges, announced_path, change_events
from managed_ledger.config import LogConfig
from quire.ledger.position import Position
from quire.metadata.errors import NoNodeError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import ANY_VERSION
from quire.wire.pulsar.names import NamespaceName, TopicName

_LOGS: WeakKeyDictionary[MemoryTree, dict[str, list[tuple[str, Json | None]]]] = WeakKeyDictionary()


class MemoryPolicies:
    """The source of policies of one broker; see `PolicySource`."""

    def __init__(self, tree: MemoryTree, store: MemoryStore) -> None:
        self._store = store
        self.logs_by_name = _LOGS.setdefault(tree, {})

    async def logs(self, namespace: NamespaceName) -> list[TopicName]:
        await trio.lowlevel.checkpoint()
        name = change_events(namespace)
        return [name] if name.full in self.logs_by_name else []

    async def changes(self, log: TopicName, since: Position | None, announced: Position | None) -> PolicyChanges:
        return await self.changes_here(log, since)

    async def changes_here(self, log: TopicName, since: Position | None) -> PolicyChanges:
        await trio.lowlevel.checkpoint()
        events = self.logs_by_name.get(log.full, [])
        first = -1 if since is None else since.entry_id
        return PolicyChanges(since is None, Position(1, len(events) - 1), dict(events[first + 1 :]), False)

    async def log_of(self, name: TopicName) -> TopicName:
        await trio.lowlevel.checkpoint()
        return change_events(name.namespace_name)

    async def update(
        self,
        name: TopicName,
        change: Callable[[Json], Json] | None,
        *,
        is_global: bool,
        older: Mapping[str, Json],
    ) -> list[str]:
        events = self.logs_by_name.setdefault(change_events(name.namespace_name).full, [])
        known = dict(events)
        events += [(full, fields) for full, fields in older.items() if full not in known]
        known = dict(events)
        if change is None:
            events += [(key, None) for each in (False, True) if (key := key_of(name, is_global=each)) in known]
        else:
            key = key_of(name, is_global=is_global)
            events.append((key, said({**change(dict(known.get(key) or {})), IS_GLOBAL: is_global})))
        path, value = announced_path(name.namespace_name), encode_json({"__change_events": f"1:{len(events) - 1}"})
        try:
            await self._store.put(path, value, ANY_VERSION)
        except NoNodeError:
            await self._store.create(path, value, make_parents=True)
        return list(older)

    async def delete(self, name: TopicName, *, older: Mapping[str, Json]) -> list[str]:
        return await self.update(name, None, is_global=False, older=older)


def policies_on(tree: MemoryTree, store: MemoryStore, default: LogConfig) -> TopicPolicies:
    """Return the policies of one broker of cluster `c`."""
    made = TopicPolicies(store, default, BrokerOptions(cluster_name="c", allow_override_entry_filters=True))
    made.source = MemoryPolicies(tree, store)
    return made
