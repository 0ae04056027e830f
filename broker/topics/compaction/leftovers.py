"""Ledgers that a compaction makes or replaces, named in the metadata as long as they may have to be deleted.

    /quire/compactions/<tenant>/<namespace>/persistent/<topic, escaped>/<new ledger>      id of the old ledger, or -1

The node is made in one write with the new ledger, by the owner of the log only. It goes when one of the two ledgers is
deleted: the new one, if the cursor does not name it, else the old one. So a kill at any moment leaves no ledger that
neither the cursor nor such a node names. A node that is left is cleaned when the topic is loaded, compacted or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from broker.topics.compaction import raw_message
from cursors.cursor import Cursor
from cursors.doors import Writer
from cursors.services import CursorServices
from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.ledger.position import Position
from quire.metadata.errors import BadVersionError, MetadataError, NoNodeError, NotEmptyError
from quire.metadata.store import Create, MetadataStore, Op
from quire.wire.bookkeeper.entry import DigestType
from quire.wire.pulsar.names import TopicName

ROOT: Final = "/quire/compactions"
COMPACTION_CURSOR: Final = "__compaction"
LEDGER_PROPERTY: Final = "CompactedTopicLedger"
"""Number stored with the cursor's position: the compacted ledger. Source: Pulsar's Compactor."""
NO_LEDGER: Final = -1
_TRIES: Final = 5
"""Attempts to make a ledger while the log's list changes, which is no sign of another owner."""


def folder(name: TopicName) -> str:
    return f"{ROOT}/{name.managed_ledger_path}"


def compacted_ledger(cursor: Cursor) -> int:
    """Return the ledger that the cursor names; NO_LEDGER if there is none."""
    return cursor.properties.get(LEDGER_PROPERTY, NO_LEDGER)


async def new_ledger(services: CursorServices, name: TopicName, old: int, last: Position) -> Writer:
    """Create a compacted ledger, which replaces `old`, and its node. `last`: see `encode_horizon`.

    Raises CursorFencedError (another broker has the log), LedgerError, MetadataError.
    Source: LedgerMetadataUtils.buildMetadataForCompactedLedger; Compactor for the digest."""

    def also(ledger_id: int) -> Sequence[Op]:
        path = f"{folder(name)}/{ledger_id}"
        return [*services.proof(), Create(path=path, value=str(old).encode(), make_parents=True)]

    quorums = services.next_quorums
    for remaining in reversed(range(_TRIES)):
        try:
            return await services.ledgers.create(
                ensemble_size=quorums.ensemble_size,
                write_quorum=quorums.write_quorum,
                ack_quorum=quorums.ack_quorum,
                digest_type=DigestType.CRC32,
                custom_metadata=(
                    ("application", b"pulsar"),
                    ("component", b"compacted-ledger"),
                    ("pulsar/compactedTopic", name.full.encode()),
                    ("pulsar/compactedTo", raw_message.encode_horizon(last, name.partition)),
                    *quorums.placement,
                ),
                also=also,
            )
        except BadVersionError:
            await services.confirm_ownership()
            if not remaining:
                raise
    raise AssertionError("the last attempt returns or raises")


async def clean(services: CursorServices, name: TopicName, cursor: Cursor) -> None:
    """Delete the ledgers that were made for the topic's compaction and are not the cursor's.

    Raises CursorError, LedgerError, MetadataError: then the rest is left to the next call."""
    try:
        nodes = await services.metadata.children(folder(name))
    except NoNodeError:
        return
    await cursor.wait_persisted()
    # All nodes are of this broker, or of earlier owners: a later owner made none before this.
    await services.confirm_ownership()
    current = compacted_ledger(cursor)
    for ledger_id in await named(services.metadata, name, nodes):
        if ledger_id != current:
            try:
                await services.ledgers.delete(ledger_id)
            except NoSuchLedgerError:
                pass
    await forget(services.metadata, name, nodes)


async def named(metadata: MetadataStore, name: TopicName, nodes: Sequence[str] | None = None) -> list[int]:
    """Return the ledgers that these nodes name, all nodes of the topic if None. Raises MetadataError."""
    found: list[int] = []
    try:
        for node in await metadata.children(folder(name)) if nodes is None else nodes:
            value = await metadata.get(f"{folder(name)}/{node}")
            old = NO_LEDGER if value is None else int(value.value)
            found += [each for each in (int(node), old) if each != NO_LEDGER]
    except NoNodeError:
        pass
    except ValueError as error:
        raise LedgerError(f"a node below {folder(name)} names no ledger: {error}") from error
    return found


async def forget(metadata: MetadataStore, name: TopicName, nodes: Sequence[str] | None = None) -> None:
    """Delete these nodes, all of the topic if None, and the folder if it is empty. Raises MetadataError."""
    try:
        for node in await metadata.children(folder(name)) if nodes is None else nodes:
            await _delete(metadata, f"{folder(name)}/{node}")
    except NoNodeError:
        return
    await _delete(metadata, folder(name))


async def _delete(metadata: MetadataStore, path: str) -> None:
    try:
        await metadata.delete(path)
    except (NoNodeError, NotEmptyError):
        pass


class Stoppable(Protocol):
    """Compaction of a loaded topic."""

    async def stop(self) -> None:
        """End the run under way, if there is one, and wait for its end."""


async def delete_log(
    factory: ManagedLedgerFactory, metadata: MetadataStore, name: TopicName, compaction: Stoppable | None
) -> None:
    """Delete the log of a topic with the ledgers of its compaction, which is stopped.

    Raises as `ManagedLedgerFactory.delete`; CursorError."""
    if compaction is not None:
        await compaction.stop()
    path = name.managed_ledger_path
    try:
        ledger_ids = set(await named(metadata, name))
        nodes = bool(ledger_ids)
        properties = await factory.stored_properties(path, COMPACTION_CURSOR)
        ledger_ids.add(properties.get(LEDGER_PROPERTY, NO_LEDGER))
        await factory.delete(path, also=sorted(ledger_ids - {NO_LEDGER}))
        if nodes:
            await forget(metadata, name)
    except (LedgerError, MetadataError) as error:
        raise ManagedLedgerUnavailableError(f"{path} cannot be deleted: {error}") from error
