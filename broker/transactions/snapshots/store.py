"""Snapshots of the transactions of all topics: read and written here where this broker serves the topic that holds
them, else at its owner.

A reader waits for the owner of that topic, as loading a topic waits for its policies: without the snapshot it is not
known which messages were aborted. A snapshot that a former owner of a topic writes late is old, and still true.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from broker.context import Context
from broker.errors import BrokerError, MetadataUnavailableError, ServiceNotReadyError, TopicExistsError, translated
from broker.ownership.local import Owning
from broker.ownership.lookup import Connect
from broker.topics.schemas.avro_schema import AvroSchemaError, AvroType, parse
from broker.topics.schemas.schema import SchemaType, version_bytes
from broker.transactions.buffer_state import Snapshot, SnapshotError, united
from broker.transactions.snapshots.formats import (
    INDEXES,
    SEGMENTS,
    SNAPSHOTS,
    decode_index,
    decode_segment,
    decode_snapshot,
    snapshot_message,
    snapshot_schema,
)
from broker.transactions.snapshots.local import LocalSnapshots
from broker.transactions.snapshots.remote import RemoteSnapshots
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.stored_list import log_path
from quire.client.attachment import Home
from quire.client.client import Client
from quire.client.connections import Connections
from quire.client.options import ClientOptions
from quire.client.routing import partition_of
from quire.client.service_url import parse_service_url
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.service.recent import Recent
from quire.wire.pulsar.names import TopicName

if TYPE_CHECKING:
    from broker.topics.loaded_topics import Topics

log = get_logger(__name__)

REMOTE_MAX: Final = 1000
REMOTE_TTL_S: Final = 60.0
"""Time for which it is kept where the snapshots at another broker are."""
INLINE_BYTES_MAX: Final = 4096
"""Size up to which a value is decoded on the event loop."""
INLINE_ABORTED_MAX: Final = 100
TYPES_MAX: Final = 1000


class Snapshots:
    """Snapshots of the transactions of all topics, as one broker reads and writes them."""

    def __init__(self, context: Context, topics: Topics, metadata: MetadataStore, ownership: Owning) -> None:
        self._context = context
        self._topics = topics
        self._metadata = metadata
        self._ownership = ownership
        self._local: dict[str, LocalSnapshots] = {}
        self._remote: Recent[str, RemoteSnapshots] = Recent(REMOTE_MAX, REMOTE_TTL_S)
        self._types: LRUCache[tuple[str, int], AvroType] = LRUCache(TYPES_MAX)
        self._connections: Connections | None = None
        self._client: Client | None = None
        self._producer = ""

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()

    # Reading

    async def find(self, topic: TopicName, has_ledger: Callable[[int], bool]) -> Snapshot | None:
        """Return what is stored about the transactions of a topic; None: nothing is. `has_ledger`: whether the log of
        the topic still has a ledger. Raises MetadataUnavailableError."""
        try:
            found = [
                each
                for source in await self._sources(topic, SNAPSHOTS)
                if (each := await self._single(source, topic)) is not None
            ]
            for source in await self._sources(topic, INDEXES):
                found += await self._segmented(source, topic, has_ledger)
        except (SnapshotError, MetadataError) as error:
            raise MetadataUnavailableError(f"snapshot of the transactions of {topic.full}: {error}") from error
        except MetadataUnavailableError:
            raise
        except BrokerError as error:
            raise MetadataUnavailableError(f"snapshot of the transactions of {topic.full}: {error}") from error
        return united(found)

    async def _single(self, source: TopicName, topic: TopicName) -> Snapshot | None:
        value = await (await self._at(source)).last(topic.full)
        if value is None:
            return None
        kind = await self._type(source, value.version)
        job = partial(decode_snapshot, kind, value.data, value.properties)
        if len(value.data) <= INLINE_BYTES_MAX:
            return job()
        return await self._context.world.offload.run(job, name=f"snapshot of {topic.full}")

    async def _segmented(
        self, source: TopicName, topic: TopicName, has_ledger: Callable[[int], bool]
    ) -> list[Snapshot]:
        """Return a snapshot in segments, in parts."""
        value = await (await self._at(source)).last(topic.full)
        if value is None:
            return []
        offload = self._context.world.offload
        kind = await self._type(source, value.version)
        index = await offload.run(partial(decode_index, kind, value.data), name=f"index of {topic.full}")
        found = [index.last]
        segments = _of_namespace(topic, SEGMENTS)
        for place, marker in index.places:
            if not has_ledger(marker.ledger_id):
                continue  # its transactions are trimmed, and it may be deleted
            stored = await (await self._at(segments)).at(place)
            if stored is None:
                raise SnapshotError(f"{segments.full} has no segment at {place}")
            of_segment = await self._type(segments, stored.version)
            job = partial(decode_segment, of_segment, stored.data, marker)
            found.append(index.last._replace(aborted=await offload.run(job, name=f"segment of {topic.full}")))
        return found

    async def _sources(self, topic: TopicName, local: str) -> list[TopicName]:
        """Return the topic of that name in the namespace of another, or its partitions; none if it does not exist."""
        name = _of_namespace(topic, local)
        count = await self._topics.partitioned.get(name)
        if count:
            return [name.with_partition(index) for index in range(count)]
        path = log_path(name.managed_ledger_path)
        with translated(path):
            return [name] if await self._metadata.get(path) is not None else []

    async def _at(self, source: TopicName) -> LocalSnapshots | RemoteSnapshots:
        if await self._is_mine(source):
            return await self._here(source)
        return self._there(source)

    async def _is_mine(self, source: TopicName) -> bool:
        found = await self._ownership.lookup(source, authoritative=False)
        return isinstance(found, Connect) and found.mine

    async def _here(self, source: TopicName) -> LocalSnapshots:
        try:
            topic = await self._topics.get(source, create=False)
        except (ManagedLedgerError, CursorError) as error:
            raise ServiceNotReadyError(f"{source.full} cannot be loaded: {error}") from error
        known = self._local.get(source.full)
        if known is not None and known.topic is topic:
            return known
        made = self._local[source.full] = LocalSnapshots(topic)
        for full in [full for full, each in self._local.items() if each.topic.closing]:
            del self._local[full]
        return made

    def _there(self, source: TopicName) -> RemoteSnapshots:
        known = self._remote.get(source.full)
        if known is None:
            if self._client is None:
                context = self._context
                options = ClientOptions(credentials=context.credentials)
                address = parse_service_url(context.own_url)
                self._connections = Connections(
                    context.world, options, context.nursery, address, tls=context.client_tls
                )
                self._client = Client(Home(context.world, options, self._connections), context.nursery)
            known = RemoteSnapshots(source, self._client)
        self._remote.put(source.full, known)
        return known

    async def _type(self, source: TopicName, number: int) -> AvroType:
        """Return the type of a version of the schema. Raises SnapshotError."""
        key = (source.partitioned.full, number)
        known = self._types.get(key)
        if known is None:
            schemas, name = self._topics.schemas, source.partitioned
            found = await (schemas.newest(name) if number < 0 else schemas.version(name, number))
            if found is None or found.schema.type is not SchemaType.AVRO:
                raise SnapshotError(f"{name.full} has no Avro schema of version {number}")
            try:
                known = self._types[key] = parse(found.schema.data)
            except AvroSchemaError as error:
                raise SnapshotError(f"schema {number} of {name.full} cannot be read: {error}") from error
        return known

    # Writing

    async def place(self, topic: TopicName) -> TopicName | None:
        """Return the topic, or the partition, in which the snapshots of a topic are stored; None: there is none yet.
        Raises BrokerError."""
        sources = await self._sources(topic, SNAPSHOTS)
        return sources[partition_of(topic.full, len(sources))] if sources else None

    async def store(self, topic: TopicName, snapshot: Snapshot | None) -> None:
        """Store the snapshot of a topic; durable on return. None: it has none any more. Raises BrokerError."""
        found = await self.place(topic)
        source = found or _of_namespace(topic, SNAPSHOTS)
        if not await self._is_mine(source):
            await self._there(source).append(topic, snapshot)
            return
        if found is None:
            try:
                await self._topics.create(source)
            except TopicExistsError:
                pass  # another caller was first
        here = await self._here(source)
        if here.version is None:
            schemas = self._topics.schemas
            rules = schemas.defaults.rules(source, None, None)
            here.version = version_bytes(await schemas.register(source, snapshot_schema(), rules))
        job = partial(snapshot_message, topic, snapshot, here.version)
        many = snapshot is not None and len(snapshot.aborted) > INLINE_ABORTED_MAX
        message = await self._context.world.offload.run(job, name=f"snapshot of {topic.full}") if many else job()
        await here.append(message, self._producer_name())

    def _producer_name(self) -> str:
        self._producer = self._producer or self._context.next_producer_name()
        return self._producer

    async def forget(self, topic: TopicName) -> None:
        """Delete the snapshot of a deleted topic. What fails is left: it names transactions and ledgers that never come
        again."""
        try:
            for source in await self._sources(topic, SNAPSHOTS):
                if await (await self._at(source)).last(topic.full) is not None:
                    await self.store(topic, None)
        except BrokerError as error:
            log.info("snapshot of a deleted topic is kept", topic=topic.full, reason=str(error))


def _of_namespace(topic: TopicName, local: str) -> TopicName:
    return TopicName("persistent", topic.tenant, topic.namespace, local)
