"""Partitioned topics and their partition counts: nodes in the metadata store, in the original's layout.

    /admin/partitioned-topics/<tenant>/<namespace>/persistent/<topic>
        {"partitions":N,"deleted":false,"properties":{"key":"value"}}
    /managed-ledgers/<tenant>/<namespace>/persistent/<topic>-partition-I
        the log of a partition, empty until it is used

Partitions of non-persistent topics have no logs.

What holds:
- The node, the logs it names, and the subscriptions of new partitions appear in one write: there is no half-made topic,
  and nothing is published to a partition before every subscription of the topic is on it.
- Deletion goes the other way round, and can be repeated from any point: first the node is marked `deleted`, which keeps
  clients from loading (and so making) a partition; then the partitions are deleted, then the node. So the rest of an
  interrupted deletion has a name, and no client finds half a topic.

Source: the original's PartitionedTopicMetadata; reference names in docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

import trio

from broker.errors import (
    BeingDeletedError,
    InvalidTopicError,
    MetadataRefusedError,
    MetadataUnavailableError,
    NotPartitionedError,
    PartitionCountError,
    TopicExistsError,
    translated,
)
from broker.topics.system_names import is_system_cursor
from cursors.errors import CursorDamagedError
from cursors.position_info import NO_LEDGER, decode_node
from managed_ledger.stored_list import log_path
from quire.ledger.position import EARLIEST
from quire.metadata.errors import BadVersionError, MetadataError, NodeExistsError, NoNodeError
from quire.metadata.store import Create, MetadataStore, Op, Put
from quire.service.log import get_logger
from quire.service.recent import Recent
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import (
    PARTITION_NUMBER,
    PERSISTENT,
    NamespaceName,
    TopicName,
    decode_name,
    encode_name,
)

log = get_logger(__name__)

ROOT = "/admin/partitioned-topics"
NAMES_MAX = 10_000
NAME_TTL_S = 5.0
"""Seconds for which a count changed by another broker may still be used."""
RACES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """Value of the node."""

    partitions: int
    deleted: bool = False
    """True while it is being deleted."""
    properties: tuple[tuple[str, str], ...] = ()


def encode(value: Partitioning) -> bytes:
    """
    >>> encode(Partitioning(partitions=4)), encode(Partitioning(partitions=4, properties=(("a", "b"),)))
    (b'{"partitions":4,"deleted":false}', b'{"partitions":4,"deleted":false,"properties":{"a":"b"}}')
    """
    fields: dict[str, object] = {"partitions": value.partitions, "deleted": value.deleted}
    if value.properties:  # as the original stores it
        fields["properties"] = dict(value.properties)
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(value: bytes) -> Partitioning:
    """Decode a node, ignoring unknown fields. Raises MetadataRefusedError if it cannot be read."""
    try:
        fields = json.loads(value)
        count = fields["partitions"]
        if not isinstance(count, int):
            raise TypeError(f"{count!r} partitions")
        properties = tuple((str(key), str(text)) for key, text in (fields.get("properties") or {}).items())
        return Partitioning(partitions=count, deleted=bool(fields.get("deleted")), properties=properties)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataRefusedError(f"the metadata of a partitioned topic cannot be read: {error}") from error


class _Changing:
    """See `PartitionedTopics.changing`. No generator: each topic that is loaded comes by."""

    __slots__ = ("_changing", "_done", "_name")

    def __init__(self, changing: dict[str, _Changing], name: str) -> None:
        self._changing = changing
        self._name = name
        self._done: trio.Event | None = None
        """Set at the end; None: no other task waits."""

    async def __aenter__(self) -> None:
        while (other := self._changing.get(self._name)) is not None:
            await other._over()
        self._changing[self._name] = self

    async def _over(self) -> None:
        """Wait until this change is over."""
        if self._done is None:
            self._done = trio.Event()
        await self._done.wait()

    async def __aexit__(self, *_: object) -> None:
        del self._changing[self._name]
        if self._done is not None:
            self._done.set()


class PartitionedTopics:
    """Partitioned topics of a cluster. Every call but `known` raises MetadataUnavailableError when the store is
    away."""

    def __init__(self, metadata: MetadataStore, *, partitions_max: int = 0) -> None:
        self.on_half_deleted: Callable[[TopicName], None] = _ignore
        """Called with a topic that is marked as deleted and still exists."""
        self._metadata = metadata
        self.partitions_max = partitions_max
        """Partitions of one topic; 0: no limit."""
        self._counts: Recent[str, int] = Recent(NAMES_MAX, NAME_TTL_S)
        self._changes = 0
        self._changing: dict[str, _Changing] = {}

    # Queries

    def known(self, name: TopicName) -> int | None:
        """Return `get` from memory; None: it has to be read."""
        return self._counts.get(name.full)

    async def get(self, name: TopicName) -> int:
        """Return the number of partitions; 0: not partitioned. Raises BeingDeletedError."""
        if (known := self._counts.get(name.full)) is not None:
            return known
        changes = self._changes
        found = await self._read(name)
        if found is None:
            count = 0
        elif found[0].deleted:
            self.on_half_deleted(name)
            raise BeingDeletedError(f"topic {name.full} is being deleted")
        else:
            count = found[0].partitions
        if changes == self._changes:
            self._counts.put(name.full, count)
        return count

    async def names(self, namespace: NamespaceName, domain: str = PERSISTENT) -> list[TopicName]:
        """Return the partitioned topics of a namespace, in order."""
        return sorted_topics_in(str(namespace), await self._children(f"{ROOT}/{namespace}/{domain}"), domain)

    async def find(self, name: TopicName) -> Partitioning | None:
        """Return the current value of the node; None: not partitioned."""
        found = await self._read(name)
        return None if found is None else found[0]

    async def existing_partitions(self, name: TopicName) -> list[int]:
        """Return the numbers of the partitions that have a log, whether or not the node counts them, ascending.

        Not their names: there may be thousands, in one step of the event loop."""
        prefix = f"{encode_name(name.local)}-partition-"
        components = await self._children(log_path(f"{name.namespace_path}/persistent"))
        numbers = [each[len(prefix) :] for each in components if each.startswith(prefix)]
        return sorted(map(int, filter(PARTITION_NUMBER.fullmatch, numbers)))

    # Changes

    def changing(self, name: TopicName) -> _Changing:
        """Inside `async with`, nobody else of this broker changes the topic's kind or its partitions."""
        return _Changing(self._changing, name.full)

    def is_changing(self, name: TopicName) -> bool:
        """Return whether `changing` is held."""
        return name.full in self._changing

    async def create(
        self,
        name: TopicName,
        partitions: int,
        properties: Mapping[str, str] | None = None,
        log_value: bytes | None = None,
    ) -> None:
        """Create it with the logs of its partitions. Hold `changing`.

        Existing logs (of a lost node) are used as they are. With `log_value`, the value that each log begins with, none
        may exist.

        Raises TopicExistsError, PartitionCountError, InvalidTopicError, BeingDeletedError."""
        if "-partition-" in name.local:
            raise InvalidTopicError("the name of a partitioned topic cannot hold `-partition-`")
        self._check_count(partitions)
        value = Partitioning(partitions=partitions, properties=tuple((properties or {}).items()))
        for _ in range(RACES_MAX):
            found = await self._read(name)
            if found is not None:
                if found[0].deleted:
                    raise BeingDeletedError(f"topic {name.full} is being deleted")
                raise TopicExistsError(f"partitioned topic {name.full} exists")
            if await self._exists(log_path(name.managed_ledger_path)):
                raise TopicExistsError(f"topic {name.full} exists, and is not partitioned")
            existing = await self.existing_partitions(name)
            if existing and log_value is not None:
                raise TopicExistsError(f"{name.with_partition(existing[0]).full} exists: delete it first")
            if existing and existing[-1] >= partitions:
                last = name.with_partition(existing[-1])
                raise TopicExistsError(f"{last.full} exists: that takes {last.partition + 1} partitions")
            ops: list[Op] = [Create(path=_path(name), value=encode(value), make_parents=True)]
            ops += self._new_logs(name, range(partitions), set(existing), log_value or b"")
            try:
                await self._write(name, ops)
                return
            except NodeExistsError:
                continue  # another broker created one of them meanwhile: look again
        raise MetadataUnavailableError(f"topic {name.full} is being changed by others")

    async def grow(self, name: TopicName, partitions: int) -> int:
        """Grow to so many partitions; return the former number. Hold `changing`.

        New ones get every durable subscription of the others, at their first entry. Missing logs are created. Raises
        NotPartitionedError, PartitionCountError, BeingDeletedError."""
        self._check_count(partitions)
        for _ in range(RACES_MAX):
            found = await self._read(name)
            if found is None:
                raise NotPartitionedError(f"there is no partitioned topic {name.full}")
            value, version = found
            if value.deleted:
                raise BeingDeletedError(f"topic {name.full} is being deleted")
            before = value.partitions
            if partitions < before:
                raise PartitionCountError(f"{name.full} has {before} partitions, which is more than {partitions}")
            existing = set(await self.existing_partitions(name))
            ops = self._new_logs(name, range(partitions), existing)
            if partitions > before:
                ops += await self._new_cursors(name, before, partitions)
                ops.append(Put(path=_path(name), value=encode(replace(value, partitions=partitions)), version=version))
            try:
                if ops:
                    await self._write(name, ops)
                return before
            except (NodeExistsError, BadVersionError, NoNodeError):
                continue
        raise MetadataUnavailableError(f"topic {name.full} is being changed by others")

    async def mark(self, name: TopicName, *, deleted: bool) -> None:
        """Set or clear the mark of the first step of a deletion. Raises NotPartitionedError. Hold `changing`."""
        await self._update(name, lambda value: replace(value, deleted=deleted))

    async def update_properties(self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Store what `change` makes of the properties. Raises NotPartitionedError, BeingDeletedError, and as
        `change`."""

        def changed(value: Partitioning) -> Partitioning:
            if value.deleted:
                raise BeingDeletedError(f"topic {name.full} is being deleted")
            return replace(value, properties=tuple(change(dict(value.properties)).items()))

        await self._update(name, changed)

    async def _update(self, name: TopicName, change: Callable[[Partitioning], Partitioning]) -> None:
        for _ in range(RACES_MAX):
            found = await self._read(name)
            if found is None:
                raise NotPartitionedError(f"there is no partitioned topic {name.full}")
            value, version = found
            if (changed := change(value)) == value:
                self._changed(name)
                return
            try:
                await self._write(name, [Put(path=_path(name), value=encode(changed), version=version)])
                return
            except (BadVersionError, NoNodeError):
                continue
        raise MetadataUnavailableError(f"topic {name.full} is being changed by others")

    async def delete(self, name: TopicName) -> None:
        """Delete the node, the last step of a deletion; a missing node is no error. Hold `changing`."""
        with translated(name.full):
            try:
                await self._metadata.delete(_path(name))
            except NoNodeError:
                pass
            finally:
                self._changed(name)

    def _check_count(self, partitions: int) -> None:
        if partitions < 1:
            raise PartitionCountError("a partitioned topic has at least one partition")
        if 0 < self.partitions_max < partitions:
            raise PartitionCountError(f"a partitioned topic has at most {self.partitions_max} partitions")

    def _new_logs(self, name: TopicName, wanted: range, existing: set[int], value: bytes = b"") -> list[Op]:
        if name.domain != PERSISTENT:
            return []  # nothing is stored
        # Not by a name of each partition: there may be thousands, in one step of the event loop.
        path = log_path(name.managed_ledger_path)
        return [
            Create(path=f"{path}-partition-{index}", value=value, make_parents=True)
            for index in wanted
            if index not in existing
        ]

    async def _new_cursors(self, name: TopicName, before: int, partitions: int) -> list[Op]:
        """Return nodes of cursors that begin with the first entry of new logs.

        They have the state of a cursor before its first acknowledgement, and before any ledger exists."""
        values: dict[str, bytes] = {}
        for index in range(before):
            path = log_path(name.with_partition(index).managed_ledger_path)
            for component in await self._children(path):
                if component not in values and not is_system_cursor(decode_name(component)):
                    values[component] = await self._first_node(f"{path}/{component}")
        ops: list[Op] = []
        for index in range(before, partitions):
            path = log_path(name.with_partition(index).managed_ledger_path)
            there = await self._children(path)
            ops += [
                Create(path=f"{path}/{component}", value=value)
                for component, value in values.items()
                if component not in there
            ]
        return ops

    async def _first_node(self, like: str) -> bytes:
        """Return the value of a new cursor, with the user's properties of the one at path `like`."""
        info = pb.ManagedCursorInfo(
            cursorsLedgerId=NO_LEDGER, markDeleteLedgerId=EARLIEST.ledger_id, markDeleteEntryId=EARLIEST.entry_id
        )
        with translated(like):
            found = await self._metadata.get(like)
        try:
            node = None if found is None else decode_node(found.value)[0]
        except CursorDamagedError:
            node = None  # reported when that partition is loaded
        for key, text in () if node is None else node.cursor_properties:
            info.cursorProperties.add(name=key, value=text)
        return info.SerializeToString()

    async def subscriptions(self, partition: TopicName) -> list[str]:
        """Return the names of the durable subscriptions of a topic or partition, from the store, in order; [] if there
        is no such topic."""
        return sorted(map(decode_name, await self._children(log_path(partition.managed_ledger_path))))

    # The store

    async def _read(self, name: TopicName) -> tuple[Partitioning, int] | None:
        with translated(name.full):
            node = await self._metadata.get(_path(name))
        return None if node is None else (decode(node.value), node.version)

    async def _exists(self, path: str) -> bool:
        with translated(path):
            return await self._metadata.get(path) is not None

    async def _children(self, path: str) -> list[str]:
        with translated(path):
            try:
                return await self._metadata.children(path)
            except NoNodeError:
                return []

    async def _write(self, name: TopicName, ops: list[Op]) -> None:
        """Write the nodes of a change. At NodeExistsError, BadVersionError, NoNodeError nothing was written: look
        again."""
        try:
            await self._metadata.multi(ops)
        except (NodeExistsError, BadVersionError, NoNodeError):
            raise
        except MetadataError as error:
            raise MetadataUnavailableError(f"{name.full}: {error}") from error
        finally:
            self._changed(name)

    def _changed(self, name: TopicName) -> None:
        """Drop a cached, or pending, value that may be outdated."""
        self._changes += 1
        self._counts.forget(name.full)


def topics_in(namespace: str, components: Iterable[str], domain: str = PERSISTENT) -> Iterator[TopicName]:
    """Return the topics whose nodes have these names, in a folder of the namespace, skipping other nodes."""
    for component in components:
        try:
            yield TopicName.from_managed_ledger_path(f"{namespace}/{domain}/{component}")
        except InvalidNameError:
            log.debug("not a topic", namespace=namespace, node=component)


def sorted_topics_in(namespace: str, components: Iterable[str], domain: str = PERSISTENT) -> list[TopicName]:
    """Return `topics_in` in order: of one namespace, that of the full names."""
    return sorted(topics_in(namespace, components, domain), key=attrgetter("full"))


def _path(name: TopicName) -> str:
    return f"{ROOT}/{name.managed_ledger_path}"


def _ignore(name: TopicName) -> None:
    pass
