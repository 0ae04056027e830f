"""Storage of schemas, where and as Pulsar has it: see `stored`.

A new version is written to a ledger of its own, and counts when the locator names it. Until then this node names the
ledger, so that a crash at any moment leaves none that no node names:

    /quire/schemas/<tenant>/<namespace>/<topic, escaped>      id of the ledger

The node is made in one write with the ledger, and goes in one write with the change of the locator. So it also keeps
two brokers from writing at a time. One that was left by a crash is removed by the next writer, with its ledger, after
it has taken the node from its maker, whose change of the locator then fails.

A deletion marks the locator first, deletes the ledgers and then the locator. Whoever finds the mark completes it.

Source: Pulsar's BookkeeperSchemaStorage, LedgerMetadataUtils.buildMetadataForSchema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio
from cachetools import LRUCache

from broker.topics.schemas import stored
from broker.topics.schemas.schema import Version
from broker.topics.schemas.stored import IndexEntry, Locator, SchemaFormatError
from cursors.doors import Ledgers, Quorums, Writer
from quire.ledger.errors import LedgerError, NoSuchEntryError, NoSuchLedgerError
from quire.metadata.errors import BadVersionError, NodeExistsError, NoNodeError
from quire.metadata.store import Create, Delete, MetadataStore, Node, Op, Put
from quire.service.log import get_logger

log = get_logger(__name__)

INTENTS: Final = "/quire/schemas"
OTHERS_TURN_S: Final = 2.0
"""Seconds that another writer has to end what it began. It writes one entry."""
CACHE_BYTES_MAX: Final = 8 << 20
"""Bytes of definitions that are kept in memory. They never change."""
_COST: Final = 500
"""Bytes of a version beside its definition."""
ENTRY_BYTES_MAX: Final = 5 << 20


class RacedError(Exception):
    """Another writer has changed the schemas of the topic meanwhile: look again."""


class FoundSchemas:
    """The schemas of a topic as a locator says; `version` is that of its node, -1 without a node."""

    __slots__ = ("locator", "version")

    def __init__(self, locator: Locator | None, version: int) -> None:
        self.locator = locator
        self.version = version

    @property
    def index(self) -> Sequence[IndexEntry]:
        """Versions that count: those after the last tombstone."""
        if self.locator is None:
            return ()
        index = self.locator.index
        last = max((place for place, each in enumerate(index) if not each.hash), default=-1)
        return index[last + 1 :]


class SchemaStorage:
    """Schemas by id, tenant/namespace/topic. Calls raise LedgerError and MetadataError."""

    def __init__(self, metadata: MetadataStore, ledgers: Ledgers, quorums: Quorums) -> None:
        self._metadata = metadata
        self._ledgers = ledgers
        self._quorums = quorums
        self._cache: LRUCache[tuple[int, int], Version] = LRUCache(
            CACHE_BYTES_MAX, getsizeof=lambda version: _COST + len(version.schema.data)
        )

    async def find(self, key: str) -> FoundSchemas:
        """Return what the locator says. A deletion that was interrupted is completed."""
        while True:
            node = await self._metadata.get(stored.locator_path(key))
            if node is None:
                return FoundSchemas(None, -1)
            locator = self._decoded(key, node)
            if not locator.deleting:
                return FoundSchemas(locator, node.version)
            await self._finish_deletion(key, locator, node.version)

    @staticmethod
    def _decoded(key: str, node: Node) -> Locator:
        try:
            return stored.decode_locator(node.value)
        except SchemaFormatError as error:
            raise LedgerError(f"schemas of {key}: {error}") from error

    async def read(self, key: str, entry: IndexEntry) -> Version | None:
        """Return a version; None if its ledger is gone or holds something else, which is logged."""
        place = entry.ledger_id, entry.entry_id
        if (known := self._cache.get(place)) is not None:
            return known
        try:
            reader = await self._ledgers.open(entry.ledger_id, recover=True)
            (data,) = await reader.read(entry.entry_id, entry.entry_id, size_max=ENTRY_BYTES_MAX)
            found = stored.decode_entry(entry.number, data)
        except (NoSuchLedgerError, NoSuchEntryError, SchemaFormatError) as error:
            log.error("version of a schema lost", schema=key, version=entry.number, reason=str(error))
            return None
        if _COST + len(found.schema.data) <= CACHE_BYTES_MAX:
            self._cache[place] = found
        return found

    async def read_all(self, key: str, index: Sequence[IndexEntry]) -> list[Version]:
        """Return versions in order, without those that are lost."""
        found = [await self.read(key, each) for each in index]
        return [each for each in found if each is not None]

    async def add(
        self, key: str, found: FoundSchemas, made: Callable[[int], Version], check: Callable[[], None]
    ) -> Version:
        """Store one more version, which `made` makes for its number; durable on return.

        `check` is called before it counts, and may raise. Raises RacedError."""
        number = 0 if found.locator is None else found.locator.newest.number + 1
        version = made(number)
        writer = await self._new_ledger(key)
        intent = stored_intent(key)
        try:
            await _append(writer, stored.encode_entry(key, version, found.locator))
            await writer.close()
            check()
            hashed = stored.hash_of(version)
            if found.locator is None:
                locator = stored.first_locator(writer.ledger_id, 0, hashed)
            else:
                locator = found.locator.with_version(writer.ledger_id, 0, hashed)
            value, path = stored.encode_locator(locator), stored.locator_path(key)
            change: Op = Put(path=path, value=value, version=found.version)
            if found.locator is None:
                change = Create(path=path, value=value, make_parents=True)
            await self._metadata.multi([change, Delete(path=intent, version=0)])
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            await self._discard(key, writer.ledger_id)
            raise RacedError from error
        except Exception:
            # Its outcome is unknown, or the entry is not durable. Whatever is left goes with the next write.
            await self._discard_quietly(key, writer.ledger_id)
            raise
        self._cache[writer.ledger_id, 0] = version
        return version

    async def _new_ledger(self, key: str) -> Writer:
        """Create a ledger, named by the node of the intent. Raises RacedError."""
        intent = stored_intent(key)

        def also(ledger_id: int) -> Sequence[Op]:
            return [Create(path=intent, value=str(ledger_id).encode(), make_parents=True)]

        quorums = self._quorums
        try:
            return await self._ledgers.create(
                ensemble_size=quorums.ensemble_size,
                write_quorum=quorums.write_quorum,
                ack_quorum=quorums.ack_quorum,
                custom_metadata=ledger_metadata(key),
                also=also,
            )
        except NodeExistsError as error:
            await self._remove_intent(key)
            raise RacedError from error

    async def _remove_intent(self, key: str) -> None:
        """Wait a moment for another writer to end; else remove its intent and its ledger, which do not count then."""
        path = stored_intent(key)
        watch = self._metadata.watch(path)
        try:
            before = await self._metadata.get(path)
            if before is None:
                return
            with trio.move_on_after(OTHERS_TURN_S):
                while (node := await self._metadata.get(path)) is not None and node == before:
                    await watch.next()
                return
        finally:
            watch.close()
        log.info("removing what an interrupted write of a schema left", schema=key, ledger=before.value.decode())
        await self._take_and_remove(path, int(before.value), before.version)

    async def _discard(self, key: str, ledger_id: int) -> None:
        """Delete the ledger of a version that does not count, and its intent; nothing, if it counts."""
        path = stored_intent(key)
        node = await self._metadata.get(path)
        if node is not None and node.value == str(ledger_id).encode():
            await self._take_and_remove(path, ledger_id, 0)

    async def _take_and_remove(self, path: str, ledger_id: int, version: int) -> None:
        """Remove an intent and its ledger, unless it was changed: then it counts by now, or another writer removes
        it."""
        try:
            # From here on the locator cannot be changed with it. A read would not do: it may be of the past.
            taken = await self._metadata.put(path, str(ledger_id).encode(), version)
            await self._delete_ledger(ledger_id)
            await self._metadata.delete(path, taken)
        except (BadVersionError, NoNodeError):
            pass

    async def _discard_quietly(self, key: str, ledger_id: int) -> None:
        try:
            await self._discard(key, ledger_id)
        except Exception as error:
            log.info("a ledger of a schema is left to the next write", schema=key, reason=str(error))

    async def delete(self, key: str) -> bool:
        """Delete the schemas of a topic with their ledgers; return whether there were any. Durable on return."""
        path = stored.locator_path(key)
        await self._remove_intent(key)
        while True:
            found = await self.find(key)
            if found.locator is None:
                return False
            marked = Locator(found.locator.index, deleting=True)
            try:
                version = await self._metadata.put(path, stored.encode_locator(marked), found.version)
            except (BadVersionError, NoNodeError):
                continue
            await self._finish_deletion(key, marked, version)
            return True

    async def _finish_deletion(self, key: str, locator: Locator, version: int) -> None:
        for ledger_id in locator.ledger_ids:
            await self._delete_ledger(ledger_id)
        try:
            await self._metadata.delete(stored.locator_path(key), version)
        except (BadVersionError, NoNodeError):
            pass  # another broker completes it too

    async def _delete_ledger(self, ledger_id: int) -> None:
        self._cache.pop((ledger_id, 0), None)
        try:
            await self._ledgers.delete(ledger_id)
        except NoSuchLedgerError:
            pass

    async def keys_of_namespace(self, namespace: str) -> list[str]:
        """Return the ids of a namespace that have schemas, or a write that was interrupted."""
        found: dict[str, None] = {}
        for root in (stored.ROOT, INTENTS):
            try:
                names = await self._metadata.children(f"{root}/{namespace}")
            except NoNodeError:
                continue
            found.update(dict.fromkeys(f"{namespace}/{each}" for each in names))
        return list(found)

    async def forget_namespace(self, namespace: str) -> None:
        """Delete the empty folders of a deleted namespace."""
        for root in (stored.ROOT, INTENTS):
            try:
                await self._metadata.delete(f"{root}/{namespace}")
            except NoNodeError:
                pass


def stored_intent(key: str) -> str:
    return f"{INTENTS}/{key}"


def ledger_metadata(key: str) -> Sequence[tuple[str, bytes]]:
    """Return the custom metadata of a ledger of the schemas with that id."""
    return (("application", b"pulsar"), ("component", b"schema"), ("pulsar/schemaId", key.encode()))


async def _append(writer: Writer, entry: bytes) -> None:
    """Write one entry, and wait until it is confirmed. Raises LedgerError."""
    done = trio.Event()
    failures: list[LedgerError] = []

    def confirmed(first: int, last: int) -> None:
        done.set()

    def failed(error: LedgerError) -> None:
        failures.append(error)
        done.set()

    writer.on_confirmed, writer.on_failed = confirmed, failed
    writer.append([entry])
    await done.wait()
    if failures:
        raise failures[0]
