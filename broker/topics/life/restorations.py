"""The list of restorations that are not complete, in the metadata, so that they are found without reading every topic.

    /quire-restores/<name of the topic, escaped>    {"topic":"persistent://a/b/c","backup":"c0ffee","begunMs":1,
                                                     "touchedMs":2}

A node is written before the topic is made, and at each begin or continuation of a restoration: a client makes such a
request every ten minutes. It is deleted when the topic was opened to clients. A crash between two of these steps leaves
a node of a topic that is whole, or gone. So a node is only a hint; the mark of the topic decides. A partitioned topic
has one node.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

from broker.errors import MetadataRefusedError, translated
from broker.topics.partitioned_topics import PartitionedTopics
from managed_ledger.errors import ManagedLedgerDamagedError
from managed_ledger.keeping import restored_from
from managed_ledger.ledger_list import decode
from managed_ledger.stored_list import log_path
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import TopicName

ROOT: Final = "/quire-restores"
LISTED_MAX: Final = 10_000
_WHAT: Final = "the list of restorations"

log = get_logger(__name__)


class Restoration(NamedTuple):
    """A restoration that was begun. Times are in ms since 1970."""

    topic: TopicName
    backup: str
    begun_ms: int
    touched_ms: int


class Restorations:
    """The list. Every call raises MetadataUnavailableError."""

    def __init__(self, metadata: MetadataStore, partitioned: PartitionedTopics, wall_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._partitioned = partitioned
        self._wall_ms = wall_ms

    async def note(self, name: TopicName, backup: str) -> None:
        """Note that a restoration begins, or goes on. `name`: the topic, or a partition of it."""
        now = self._wall_ms()
        path = _path(name)
        with translated(_WHAT):
            node = await self._metadata.get(path)
            known = None if node is None else _decode(node.value)
            begun = known.begun_ms if known is not None and known.backup == backup else now
            value = _encode(Restoration(name.partitioned, backup, begun, now))
            if node is None:
                try:
                    await self._metadata.create(path, value, make_parents=True)
                except NodeExistsError:
                    pass  # noted by another request at this moment
            else:
                try:
                    await self._metadata.put(path, value, ANY_VERSION)
                except NoNodeError:
                    await self._metadata.create(path, value, make_parents=True)

    async def forget(self, name: TopicName) -> None:
        """Remove a topic from the list."""
        with translated(_WHAT):
            try:
                await self._metadata.delete(_path(name))
            except NoNodeError:
                pass

    async def all(self) -> list[Restoration]:
        """Return what is noted, at most LISTED_MAX, by name. A node that cannot be read is logged and left out."""
        with translated(_WHAT):
            try:
                names = sorted(await self._metadata.children(ROOT))[:LISTED_MAX]
            except NoNodeError:
                return []
            found: list[Restoration] = []
            for name in names:
                node = await self._metadata.get(f"{ROOT}/{name}")
                if node is None:
                    continue
                if (read := _decode(node.value)) is None:
                    log.warning("note of a restoration cannot be read", path=f"{ROOT}/{name}")
                else:
                    found.append(read)
        return found

    async def unfinished(self, name: TopicName) -> tuple[list[TopicName], bool]:
        """Return the topic, or its partitions, that have the mark of a restoration, and whether the node of the
        partitioned topic has it. Raises MetadataRefusedError for metadata that cannot be read."""
        partitioning = await self._partitioned.find(name)
        parts = [name]
        if partitioning is not None:
            parts = [name.with_partition(each) for each in await self._partitioned.existing_partitions(name)]
        found: list[TopicName] = []
        with translated(name.full):
            for part in parts:
                node = await self._metadata.get(log_path(part.managed_ledger_path))
                try:
                    properties = () if node is None else decode(node.value).properties
                except ManagedLedgerDamagedError as error:
                    raise MetadataRefusedError(f"{part.full}: {error}") from error
                if restored_from(properties):
                    found.append(part)
        return found, partitioning is not None and bool(restored_from(partitioning.properties))


def _path(name: TopicName) -> str:
    return f"{ROOT}/{quote(name.partitioned.full, safe='')}"


def _encode(value: Restoration) -> bytes:
    fields = {
        "topic": value.topic.full,
        "backup": value.backup,
        "begunMs": value.begun_ms,
        "touchedMs": value.touched_ms,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _decode(value: bytes) -> Restoration | None:
    """Return what a node says; None: it cannot be read."""
    try:
        fields = json.loads(value)
        return Restoration(
            TopicName.parse(fields["topic"]), str(fields["backup"]), int(fields["begunMs"]), int(fields["touchedMs"])
        )
    except (ValueError, KeyError, TypeError, InvalidNameError):
        return None
