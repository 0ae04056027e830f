"""MetadataStore embedded in one server process, over the key_value door (RocksDB in the real world).

The bytes on disk: see `rows`. Ephemeral nodes are not written at all: their session ends with the process.

Memory. A store may have millions of nodes, of which few are in use: nodes are read when they are wanted, and those that
were used last are kept (`visible`, `reading`). Opening a store reads none.

Durability and visibility. Nodes are known twice: as readers see them, and as they will be once pending writes are on
disk (an overlay of their effects). An op is validated against the second one. It becomes visible, to its caller
and to every other reader, only when its batch is synced, so no reader acts on a write that a crash can undo. A refusal
caused by a pending write is not returned before that write is durable either. All writes queued during the last sync
are one batch with one sync, and so are those of tasks that run in the same turn of the event loop: the first of them
lets the others run, then hands all to the lane. A batch wakes a thread and the loop, which costs as much CPU as
several writes.

Failed writes. If there is no space (ENOSPC, EDQUOT), all pending writes fail with MetadataUnavailableError, the tree
stays as readers saw it, and the next batch writes again the rows that the failed one may have changed. Any other
failure, above all of a sync, is final, because the disk's content is unknown. The session has then expired.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

import trio

from quire.metadata.errors import (
    InvalidPathError,
    MetadataError,
    MetadataUnavailableError,
    NoNodeError,
    SessionExpiredError,
)
from quire.metadata.local import planning
from quire.metadata.local.planning import LatestNodes, NotInMemoryError, Row, StepwisePlan, row_of
from quire.metadata.local.reading import RowReads
from quire.metadata.local.rows import prepare
from quire.metadata.local.tree import NOBODY, Effects, Plan, Znode, plan
from quire.metadata.local.visible import Unknown, VisibleNodes
from quire.metadata.local.watches import TreeWatch, WatchTable
from quire.metadata.store import ANY_VERSION, Create, Delete, Kind, Node, Op, Put
from quire.metadata.times import MetadataTimes, bytes_put
from quire.service.log import get_logger
from quire.world.doors import KeyValue, NotSyncedError, World

log = get_logger(__name__)

CACHE_BYTES = 2 << 20
"""Bytes of RocksDB's block cache: small, since the nodes in use are in memory, and the files are in the page cache."""
WRITE_BUFFER_BYTES = 2 << 20
"""As little: the metadata is written seldom."""

READS_IN_STEP = 16
"""Nodes read, by any tasks, before other tasks run: reads are answered from memory, and a task switch costs more."""

STEPWISE_MAX = 3
"""Attempts to plan very many ops in steps: if others write the same nodes each time, they are planned in one."""

_SESSION = 1
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class _Write:
    """One multi that is being written."""

    __slots__ = ("effects", "epoch", "error", "finished", "kept", "rows")

    def __init__(self, effects: Effects, kept: dict[str, None], rows: list[Row], epoch: int):
        self.effects = effects
        self.kept = kept
        self.rows = rows
        """Rows to put, or to delete (None)."""
        self.epoch = epoch
        self.finished = trio.Event()
        self.error: BaseException | None = None


class KeyValueStore:
    """Session of the process that has the map open; there is one. Created by `open_store`."""

    def __init__(self, world: World, key_value: KeyValue) -> None:
        self._offload = world.offload
        self._key_value = key_value
        self._visible = VisibleNodes()
        self._watches = WatchTable()
        self._expired = trio.Event()
        self._closed = False
        self._broken: BaseException | None = None
        self._overlay: dict[str, tuple[Znode | None, _Write]] = {}
        """Effects of pending writes on nodes, by path, from the last such write."""
        self._latest = LatestNodes(self._visible, self._overlay)
        self._plans: dict[StepwisePlan, None] = {}
        """Plans that are being made in steps."""
        self._tail: _Write | None = None
        """Last pending write."""
        self._epoch = 0
        """Grows with every failure: a write planned on top of a failed one fails too."""
        self._unsure: dict[str, None] = {}
        """Paths whose rows a failed batch may have changed."""
        self._reads = 0
        self.times = MetadataTimes()
        self._failed_epoch = -1  # used by the lane, only inside its job
        self._gathered: list[_Write] = []
        """Planned writes of this turn of the event loop, which are not with the lane yet."""
        self._lane = world.offload.lane("metadata", self._write_batch, self._written)
        self._rows = RowReads(world.offload, key_value, self._visible, self._unsettled)

    @property
    def expired(self) -> trio.Event:
        return self._expired

    @property
    def is_exclusive(self) -> bool:
        """Return True: whoever opened the store holds the directory's lock, so no other process writes to it."""
        return True

    async def get(self, path: str) -> Node | None:
        await self._read_turn()
        node = self._visible.find(path)
        while isinstance(node, Unknown):
            with self.times.of("get"):  # what is in memory takes no time
                await self._rows.fetch((path,))
            self._require()
            node = self._visible.find(path)
        if node is None:
            return None
        return Node(node.value, node.version, node.owner != NOBODY, node.owner == _SESSION, session=node.owner)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        op = Create(path=path, value=value, kind=kind, sequential=sequential, make_parents=make_parents)
        return (await self.multi((op,)))[0]

    async def put(self, path: str, value: bytes, version: int) -> int:
        _, effects = await self._commit((Put(path=path, value=value, version=version),))
        node = effects[path]
        assert node is not None, f"the effect of putting {path} was to delete it"
        return node.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._commit((Delete(path=path, version=version),))

    async def children(self, path: str) -> list[str]:
        if await self.get(path) is None:
            raise NoNodeError(f"there is no node {path}")
        known = self._visible.names(path)
        if known is not None:
            return sorted(known)
        names, _ = await self._rows.names(path)
        self._require()
        return list(names)

    async def _read_turn(self) -> None:
        """Before a read, which memory answers most of the time."""
        self._reads += 1
        if self._reads % READS_IN_STEP:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        if self._closed or self._broken is not None:
            raise self._session_is_gone()

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        results, _ = await self._commit(ops)
        return results

    def watch(self, path: str) -> TreeWatch:
        watch = self._watches.add(path)
        if self._closed or self._broken is not None:
            watch.fail(self._session_is_gone())
        return watch

    async def aclose(self) -> None:
        """Wait for pending writes, end the session, close the map. No effect if done before."""
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        self._hand_over()
        await self._lane.aclose()
        await self._rows.aclose()
        self._watches.fail(self._session_is_gone())
        await self._offload.run(self._key_value.close, name="metadata close")

    async def _commit(self, ops: Sequence[Op]) -> tuple[list[str], Effects]:
        """Plan a write, queue it, and wait until it is durable and visible."""
        with self.times.of("del" if len(ops) == 1 and isinstance(ops[0], Delete) else "put"):
            self.times.put_bytes += bytes_put(ops)
            return await self._committed(ops)

    async def _committed(self, ops: Sequence[Op]) -> tuple[list[str], Effects]:
        planned, rows = await self._planned(ops)
        effects, kept = planned.effects, planned.kept
        if self._unsure:
            # Their rows are written again, and they stay in memory until that is done.
            effects = {**{path: self._latest.get(path) for path in self._unsure}, **effects}
            kept = {**self._unsure, **kept}
            self._unsure = {}
            rows = None
        rows = [row_of(path, effects) for path in kept] if rows is None else rows
        write = _Write(effects, kept, rows, self._epoch)
        self._rows.planned(effects)
        for plan_under_way in self._plans:
            plan_under_way.disturbed.update(effects)
        for path, node in effects.items():
            self._visible.hold(path)
            self._overlay[path] = (node, write)
        self._tail = write
        self._gathered.append(write)
        if len(self._gathered) == 1:
            await trio.lowlevel.cancel_shielded_checkpoint()
            self._hand_over()
        await write.finished.wait()
        if write.error is not None:
            raise MetadataUnavailableError(f"the metadata could not be written: {write.error}") from write.error
        return planned.results, planned.effects

    async def _planned(self, ops: Sequence[Op]) -> tuple[Plan, list[Row] | None]:
        """Plan a write; nothing changes between the plan and the return. Of very many ops the rows are made too."""
        deletes = sum([isinstance(op, Delete) for op in ops])
        left = STEPWISE_MAX if len(ops) > planning.OPS_IN_STEP else 0
        while True:
            self._require()
            self._latest.deletes = deletes
            try:
                if not left:
                    return plan(self._latest, ops, _SESSION), None
                left -= 1
                if (found := await self._planned_in_steps(ops, deletes)) is not None:
                    return found
            except NotInMemoryError as missing:
                if missing.children:
                    # Twice as many as needed, since some may be about to be deleted.
                    known = len(self._visible.some_names.get(missing.path, ()))
                    await self._rows.names(missing.path, max(16, 2 * deletes, 4 * known))
                else:
                    await self._rows.fetch(await self._unknown(missing.path, ops))
            except MetadataError:
                tail = self._tail
                if tail is None:
                    raise
                # The refusal may be caused by a write that is not durable. Wait, so that the caller, who reads again
                # now, sees that write. If that write failed, the refusal means nothing.
                await tail.finished.wait()
                if tail.error is None:
                    raise

    async def _planned_in_steps(self, ops: Sequence[Op], deletes: int) -> tuple[Plan, list[Row]] | None:
        """Return the plan of very many ops, and its rows; None if others have written the same nodes meanwhile. Raises
        as `plan`."""
        latest = LatestNodes(self._visible, self._overlay)
        latest.deletes = deletes
        stepwise = StepwisePlan(self._visible, latest, ops, _SESSION)
        self._plans[stepwise] = None
        try:
            for _ in stepwise.steps():
                await trio.lowlevel.checkpoint()
        finally:
            del self._plans[stepwise]
        self._require()
        return stepwise.result()

    async def _unknown(self, missing: str, ops: Sequence[Op]) -> dict[str, None]:
        """Return what has to be read to plan these ops, as far as it can be told now; at least the missing node."""
        wanted = {missing: None}
        for number, op in enumerate(ops if len(ops) > 1 else ()):
            if number and not number % planning.OPS_IN_STEP:
                await trio.lowlevel.checkpoint()
            # Of a sequential one, the parent is asked for.
            if not (isinstance(op, Create) and op.sequential) and self._is_unknown(op.path):
                wanted[op.path] = None
        return wanted

    def _is_unknown(self, path: str) -> bool:
        if path in self._overlay:
            return False
        try:
            return isinstance(self._visible.find(path), Unknown)
        except InvalidPathError:
            return False

    def _unsettled(self) -> list[str]:
        """Return the paths of nodes whose rows may differ from what readers see."""
        return [*self._overlay, *self._unsure]

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        for write in gathered:
            self._lane.put(write)

    def _write_batch(self, writes: list[_Write]) -> int:
        """Job of the lane, off the loop: one synced batch.

        Return how many writes, from the first, it refused because they were planned on top of a failed one.
        """
        fresh = [write for write in writes if write.epoch > self._failed_epoch]
        rows = [row for write in fresh for row in write.rows]
        if rows:
            try:
                batch = self._key_value.batch()
                for key, value in rows:
                    if value is None:
                        batch.delete(key)
                    else:
                        batch.put(key, value)
                self._key_value.write(batch, sync=True)
            except BaseException:
                self._failed_epoch = writes[-1].epoch
                raise
        return len(writes) - len(fresh)

    def _written(self, writes: list[_Write], refused: int | None, error: BaseException | None) -> None:
        """Report of the lane, on the loop."""
        if error is not None:
            self._fail(writes, error)
            return
        assert refused is not None, "the lane reports a result or an error"
        for index, write in enumerate(writes):
            if index < refused:
                write.error = OSError("a write before it failed")
            else:
                self._show(write)
            write.finished.set()
        if self._visible.is_full:
            self._visible.age(self._unsettled())

    def _show(self, write: _Write) -> None:
        overlay = self._overlay
        for path in write.effects:
            if overlay[path][1] is write:
                del overlay[path]
        if self._tail is write:
            self._tail = None
        if self._rows.lists:
            for path, node in write.effects.items():
                self._rows.shown(path, node is not None)
        self._watches.fire(self._visible.apply(write.effects))

    def _fail(self, writes: list[_Write], error: BaseException) -> None:
        self._epoch = writes[-1].epoch + 1
        for plan_under_way in self._plans:
            plan_under_way.disturbed.update(self._overlay)
        self._overlay.clear()
        self._tail = None
        if isinstance(error, NotSyncedError) or not (isinstance(error, OSError) and error.errno in _NO_SPACE):
            self._break(error)
        for write in writes:
            self._unsure.update(write.kept)
            write.error = error
            write.finished.set()

    def _break(self, error: BaseException) -> None:
        self._broken = error
        self._expired.set()
        self._watches.fail(self._session_is_gone())

    def _require(self) -> None:
        if self._closed or self._broken is not None:
            raise self._session_is_gone()

    def _session_is_gone(self) -> SessionExpiredError:
        if self._broken is not None:
            return SessionExpiredError(f"the metadata store has failed permanently: {self._broken}")
        return SessionExpiredError("the metadata store is closed")


async def open_store(world: World, directory: str, *, create: bool = True) -> KeyValueStore:
    """Open the metadata in `directory`, which is created if it is missing, unless `create` is false.

    The caller holds the directory's lock. UnsupportedLayoutError, MalformedMetadataError; OSError as the disk raises
    it, also DamagedError: nothing was changed.
    """
    key_value = await world.offload.run(partial(_open, world, directory, create), name="metadata open")
    return KeyValueStore(world, key_value)


def _open(world: World, directory: str, create: bool) -> KeyValue:
    key_value = world.key_value.open(
        directory, create=create, cache_bytes=CACHE_BYTES, write_buffer_bytes=WRITE_BUFFER_BYTES
    )
    for finding in key_value.noticed:
        log.warning("found when the metadata was opened", file=finding.file, found=finding.what)
    try:
        prepare(key_value)
        return key_value
    except BaseException:
        key_value.close()
        raise
