"""A cursor's node in the metadata store, and the ledgers it names.

What holds:
- NodeNamesEveryLedger: a cursor ledger is named in the node from the write that made it until after it is deleted.
- StateIsNamed: the ledger that holds the durable state is the node's ledger, or its previous ledger while the node's
  ledger has no entry, or there is none and the node is the state.
- Every write compares and sets the version; BadVersionError means that another broker has the cursor.
- OwnedWrites: every write happens only while this broker has the log (`CursorServices.proof`). A broker that lost the
  log without knowing cannot touch a cursor that its new owner has read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cursors.ack_state import AckState
from cursors.doors import Writer
from cursors.errors import CursorClosedError, CursorFencedError
from cursors.position_info import NO_LEDGER, CursorNode, Stored, decode_node, encode_node, node_takes
from cursors.services import CursorServices
from cursors.topic_log import topic_log
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.metadata.errors import BadVersionError, MetadataError, MetadataUnavailableError, NoNodeError
from quire.metadata.store import Create, Delete, Op, Put
from quire.service.log import Logger, get_logger
from quire.service.shared_maps import EMPTY, with_item

log = get_logger(__name__)

T = TypeVar("T")


class StoredNode:
    """The node as last written or read, with its version."""

    __slots__ = (
        "_cursor_name",
        "_log_name",
        "_path",
        "_services",
        "_unlearned",
        "_version",
        "empty_ledger_id",
        "is_touched",
        "value",
    )

    def __init__(self, services: CursorServices, path: str, log_name: str, cursor_name: str) -> None:
        self._services = services
        self._path = path
        self._log_name = log_name
        self._cursor_name = cursor_name
        self._version = 0
        self.value = CursorNode()
        self.empty_ledger_id = NO_LEDGER
        """The node's ledger, while it has no confirmed entry."""
        self.is_touched = False
        """True if `touch` was called since the node was rewritten."""
        self._unlearned: Mapping[int, CursorNode] = EMPTY
        """Values of writes with unknown outcome, by the ledger that they name."""

    @property
    def ranges_max(self) -> int:
        """Ranges of acknowledged entries that are to be stored."""
        return self._services.config.ranges_max

    @property
    def log(self) -> Logger:
        """A logger with the topic and the cursor bound."""
        return topic_log(log, self._log_name, cursor=self._cursor_name)

    async def create(self, state: AckState, cursor_properties: Sequence[tuple[str, str]]) -> None:
        """Create the node; durable on return. Raises CursorFencedError, NodeExistsError and other MetadataError."""
        node = CursorNode(last_active_ms=self._now_ms(), cursor_properties=tuple(cursor_properties))
        create = Create(path=self._path, value=self._encode(node, state))
        await self._owned(lambda: self._services.metadata.multi([create, *self._services.proof()]), own_ops=1)
        self.value, self._version = node, 0

    async def read(self) -> Stored:
        """Read the node; return its snapshot.

        Raises CursorClosedError if there is none, CursorDamagedError, MetadataError."""
        found = await self._services.metadata.get(self._path)
        if found is None:
            raise CursorClosedError(f"there is no cursor {self._cursor_name}")
        self._version = found.version
        self.value, snapshot = decode_node(found.value)
        return snapshot

    async def check(self) -> None:
        """Read the node again. Raises CursorFencedError if it has changed since the last read; MetadataError."""
        found = await self._services.metadata.get(self._path)
        if found is None or found.version != self._version:
            raise CursorFencedError(f"cursor {self._cursor_name} was changed by another broker while it was read")

    def ledger_ids(self) -> list[int]:
        """Return every ledger that the node names."""
        node = self.value
        return sorted({node.ledger_id, node.previous_ledger_id, *node.deleting} - {NO_LEDGER})

    async def end(self) -> tuple[list[int], Delete]:
        """Return every ledger that the node names, including one of a write with unknown outcome, and the deletion of
        the node as it is.

        Raises BadVersionError (the node was changed by another broker), MetadataError."""
        await self._learn_outcome()
        return self.ledger_ids(), Delete(path=self._path, version=self._version)

    def useless_ledger_ids(self) -> list[int]:
        """Return the ledgers that no state is read from."""
        kept = {self.value.ledger_id}
        if self.empty_ledger_id != NO_LEDGER:
            kept.add(self.value.previous_ledger_id)
        return [ledger_id for ledger_id in self.ledger_ids() if ledger_id not in kept]

    async def new_ledger(self, state: AckState) -> Writer:
        """Create a cursor ledger and name it in the node, in one write.

        Raises CursorFencedError: another broker has the log; BadVersionError, NoNodeError: another has the cursor;
        other LedgerError and MetadataError: retry."""
        await self._learn_outcome()
        services = self._services
        snapshot = await self._snapshot(state)

        def also(ledger_id: int) -> list[Op]:
            before = self.value
            holder = before.previous_ledger_id if self.empty_ledger_id != NO_LEDGER else before.ledger_id
            node = replace(
                before,
                ledger_id=ledger_id,
                previous_ledger_id=holder,
                deleting=tuple(other for other in self.ledger_ids() if other != holder),
            )
            self._unlearned = with_item(self._unlearned, ledger_id, node)
            return [
                Put(
                    path=self._path,
                    value=self._encode(node, snapshot, whole=snapshot is not state),
                    version=self._version,
                ),
                *services.proof(),
            ]

        async def create() -> Writer:
            quorums = services.next_quorums
            return await services.ledgers.create(
                ensemble_size=quorums.ensemble_size,
                write_quorum=quorums.write_quorum,
                ack_quorum=quorums.ack_quorum,
                custom_metadata=[*cursor_ledger_metadata(self._log_name, self._cursor_name), *quorums.placement],
                # Acknowledgements free space, so a full bookie has some reserved for them.
                high_priority=True,
                also=also,
            )

        try:
            writer = await self._owned(create, own_ops=2)
        except MetadataUnavailableError:
            await self._learn_outcome()
            raise
        self._version += 1
        self.value = self._unlearned[writer.ledger_id]
        self._unlearned = EMPTY
        self.empty_ledger_id = writer.ledger_id
        return writer

    async def _snapshot(self, state: AckState) -> AckState:
        """Return the snapshot to store in the node beside a new ledger.

        While no ledger holds the state, the node does, and has to retain it completely until the ledger has an entry.
        So if `state` does not fit as a whole, this is the node's current snapshot. Raises MetadataError,
        BadVersionError, CursorDamagedError."""
        before = self.value
        holder = before.previous_ledger_id if self.empty_ledger_id != NO_LEDGER else before.ledger_id
        if holder != NO_LEDGER or node_takes(state, self._services.config.node_ranges_max):
            return state
        found = await self._services.metadata.get(self._path)
        if found is None or found.version != self._version:
            raise BadVersionError(f"{self._path} was changed by another")
        _, stored = decode_node(found.value)
        kept = state.as_stored(stored.mark_delete, stored.ranges, stored.batches, stored.properties)
        return kept.with_redeliveries(stored.redeliveries)

    async def _learn_outcome(self) -> None:
        """Find out the outcome of writes that were not answered, by reading the node.

        A write that took effect, if it named a new ledger, created it without a writer; the next attempt lists it for
        deletion. Raises
        BadVersionError, MetadataError (outcome still unknown)."""
        if not self._unlearned:
            return
        found = await self._services.metadata.get(self._path)
        if found is None:
            raise BadVersionError(f"{self._path} is gone")
        if found.version != self._version:
            node, _ = decode_node(found.value)
            if found.version != self._version + 1 or node.ledger_id not in self._unlearned:
                raise BadVersionError(f"{self._path} was changed by another")
            self._version = found.version
            if node.ledger_id != self.value.ledger_id:
                self.empty_ledger_id = node.ledger_id
            self.value = self._unlearned[node.ledger_id]
        self._unlearned = EMPTY

    async def put_state(self, state: AckState) -> None:
        """Store the state in the node, which then needs no ledger and names those to be deleted. Raises as
        `new_ledger`."""
        await self._learn_outcome()
        node = replace(
            self.value,
            ledger_id=NO_LEDGER,
            previous_ledger_id=NO_LEDGER,
            deleting=tuple(self.ledger_ids()),
        )
        put = Put(path=self._path, value=self._encode(node, state), version=self._version)
        await self._owned(lambda: self._services.metadata.multi([put, *self._services.proof()]), own_ops=1)
        self._version += 1
        self.value = node
        self.empty_ledger_id = NO_LEDGER

    async def rewrite(self, state: AckState, change: Callable[[CursorNode], CursorNode]) -> None:
        """Store a change of what the node says beside the state, and about the same ledgers. Raises as `put_state`."""
        await self._learn_outcome()
        snapshot = await self._snapshot(state)
        node = change(self.value)
        self.is_touched = False
        self._unlearned = with_item(self._unlearned, node.ledger_id, node)
        value = self._encode(node, snapshot, whole=snapshot is not state)
        put = Put(path=self._path, value=value, version=self._version)
        try:
            await self._owned(lambda: self._services.metadata.multi([put, *self._services.proof()]), own_ops=1)
        except MetadataUnavailableError:
            await self._learn_outcome()
            if self.value != node:
                raise
            return
        self._version += 1
        self.value = node
        self._unlearned = EMPTY

    async def _owned(self, write: Callable[[], Awaitable[T]], *, own_ops: int) -> T:
        """Write with the proof of ownership behind `own_ops` operations.

        Retried if only the proof fails although this broker still has the log, after it changed its list itself."""
        while True:
            try:
                return await write()
            except (BadVersionError, NoNodeError) as error:
                if error.index < own_ops:
                    raise
            await self._services.confirm_ownership()

    async def delete_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Delete ledgers, best effort. The node names them until its next write, so the next open of the cursor
        retries."""
        for ledger_id in ledger_ids:
            try:
                await self._services.ledgers.delete(ledger_id)
            except NoSuchLedgerError:
                pass
            except (LedgerError, MetadataError) as error:
                self.log.warning("cursor ledger not deleted yet", ledger=ledger_id, reason=str(error))

    def touch(self) -> None:
        """Note in memory that the cursor is in use now; stored with the next write."""
        self.value = replace(self.value, last_active_ms=self._now_ms())
        self.is_touched = True

    def _encode(self, node: CursorNode, state: AckState, *, whole: bool = False) -> bytes:
        return encode_node(node, state, count_max=None if whole else self._services.config.node_ranges_max)

    def _now_ms(self) -> int:
        return self._services.world.clock.wall_ms()


def cursor_ledger_metadata(log_name: str, cursor_name: str) -> list[tuple[str, bytes]]:
    """Return the custom metadata of a cursor ledger, as the original writes it."""
    return [
        ("component", b"managed-ledger"),
        ("pulsar/managed-ledger", log_name.encode()),
        ("pulsar/cursor", cursor_name.encode()),
        ("application", b"pulsar"),
    ]
