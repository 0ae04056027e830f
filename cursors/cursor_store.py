"""The durable form of one cursor: a node in the metadata store, and usually a cursor ledger.

    new                    node {cursorsLedgerId -1, initial position}        before the subscription is answered
    first acknowledgement  ONE multi: ledger metadata + node {cursorsLedgerId, snapshot}; then the first entry
    every other            one entry; all that came while the last was on its way goes into the next (group commit)
    full, old or failed    as the first acknowledgement; the node names the old ledger until it is deleted
    close                  node {cursorsLedgerId -1, whole state}, then the ledger is deleted; with too many ranges the
                           ledger is kept and closed instead

What holds:
- AnsweredAcksAreDurable: a `persisted` callback gets None only after a confirmed entry (or a written node) contains at
  least all acknowledgements at the time of the call.
- OneAppendInFlight: the next entry is written after the last one is confirmed, so a chain of deltas has no gaps.
- NodeNamesEveryLedger, StateIsNamed, OwnedWrites: see `cursor_node`; NoFallBack: see `cursor_recovery`.

A cursor ledger that others fenced or closed (auto recovery does) is left for a new one, like any that failed: the write
of the node that names the new one shows whether this broker still has the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from cursors.ack_state import AckState
from cursors.cursor_node import StoredNode
from cursors.cursor_recovery import recover
from cursors.doors import Writer
from cursors.encoding import encode_pages, is_slow
from cursors.entry_chain import EntryChain
from cursors.errors import CursorClosedError, CursorError, CursorFencedError, CursorPersistError, CursorTooLargeError
from cursors.persisting import wait_for
from cursors.position_info import NO_LEDGER, CursorNode, Stored, node_takes
from cursors.services import CursorServices
from cursors.topic_log import topic_log
from quire.ledger.errors import LedgerError
from quire.ledger.position import EARLIEST, Position
from quire.ledger.writing.unheard import ignore_confirmed, ignore_failed
from quire.metadata.errors import BadVersionError, MetadataError, NoNodeError
from quire.metadata.store import Delete
from quire.service.log import Logger, get_logger
from quire.world.backoff import Backoff

log = get_logger(__name__)

Persisted: TypeAlias = Callable[[CursorError | None], None]

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
_TAKEN = (CursorFencedError, BadVersionError, NoNodeError)  # another broker has the cursor


class CursorStore:
    """Durable store of one `AckState`. Either `create` it, or `recover` and then `attach`."""

    __slots__ = (
        "_again",
        "_broken",
        "_busy",
        "_chain",
        "_closing",
        "_dirty",
        "_idle",
        "_in_flight",
        "_in_flight_mark_delete",
        "_log_name",
        "_name",
        "_node_is_state",
        "_on_fenced",
        "_queued",
        "_services",
        "_state",
        "_switched",
        "_waiting",
        "_writer",
        "_writer_since",
        "bytes_written",
        "durable_mark_delete",
        "entries_written",
        "node",
        "on_durable",
    )

    def __init__(
        self, services: CursorServices, path: str, log_name: str, name: str, on_fenced: Callable[[], None]
    ) -> None:
        self._services = services
        self._name = name
        self._log_name = log_name
        self._on_fenced = on_fenced
        self.node = StoredNode(services, path, log_name, name)
        self._state: AckState | None = None
        self._node_is_state = False
        """True if the node holds the whole durable state."""
        self._writer: Writer | None = None
        self._writer_since = 0.0
        self._dirty = self._closing = False
        self._queued = False
        """True while it is in the flusher's list."""
        self._busy = False
        """True while an entry is in flight, or a ledger is being created."""
        self._again = False
        """True if it is to flush once more when no longer busy."""
        self._idle: trio.Event | None = None
        """Set after the first entry; unset while `_busy`."""
        self._switched: trio.Event | None = None
        """Set after the first ledger; unset while one is being created, also in a stopped store (it may still come)."""
        self._waiting: list[Persisted] = []
        self._in_flight: list[Persisted] = []
        self._in_flight_mark_delete = EARLIEST
        self._chain: EntryChain | None = None
        """State of the present cursor ledger."""
        self._broken: CursorError | None = None
        self.durable_mark_delete = EARLIEST
        self.on_durable: Callable[[bool], None] = _nothing
        """Called after the durable mark-delete position moved: True if it went back."""
        self.entries_written = self.bytes_written = 0

    async def create(self, state: AckState, cursor_properties: Sequence[tuple[str, str]] = ()) -> None:
        """Create the node; durable on return. Raises CursorFencedError, NodeExistsError and other MetadataError."""
        await self.node.create(state, cursor_properties)
        self._state = state
        self._in_node(state)

    async def recover(self) -> Stored:
        """Return the last durable state, of which the caller makes an `AckState` for `attach`. Raises as `recover`."""
        stored = await recover(self.node, self._services.ledgers, self._name)
        self._node_is_state = self.node.value.ledger_id == NO_LEDGER
        return stored

    def attach(self, state: AckState) -> None:
        """Store this state from now on. Leftover ledgers are deleted in the background."""
        self._state = state
        self.durable_mark_delete = state.mark_delete
        self._delete_useless_ledgers()

    @property
    def ledger_id(self) -> int:
        """The cursor ledger, or NO_LEDGER."""
        return self.node.value.ledger_id

    def ledger_ids(self) -> list[int]:
        """Return every known ledger that the node names."""
        return self.node.ledger_ids()

    @property
    def _log(self) -> Logger:
        return topic_log(log, self._log_name, cursor=self._name)

    # Persisting

    def changed(self) -> None:
        """Schedule a write of the changed state."""
        self._dirty = True
        if not self._queued and self._broken is None and not self._closing:
            self._queued = True
            self._services.flusher.add(self)

    def persisted(self, callback: Persisted) -> None:
        """Call back once all that is acknowledged is durable (at once if it is), or with the error that prevents it."""
        if self._broken is not None:
            callback(self._broken)
        elif self._dirty:
            self._waiting.append(callback)
            self._pump()
        elif self._busy:
            self._in_flight.append(callback)
        else:
            callback(None)

    def leave_ledger(self) -> None:
        """Switch to a new ledger, if there is one: a disk is full, and an entry log is deleted only as a whole."""
        if not self._node_is_state:
            self._writer_since = float("-inf")
            self.changed()

    def flush(self) -> None:
        """Write pending changes; called by the flusher."""
        self._queued = False
        if self._dirty:
            self._pump()

    def _pump(self) -> None:
        if self._broken is not None or self._closing:
            return
        if self._busy:
            self._again = True
            return
        self._busy = True
        if self._writer is None or self._is_due(self._writer):
            self._start_switch()
        else:
            self._append(self._writer)

    def _is_due(self, writer: Writer) -> bool:
        config = self._services.config
        age_s = trio.current_time() - self._writer_since
        return writer.last_pushed + 1 >= config.entries_max or age_s > config.age_max_s

    def _append(self, writer: Writer) -> None:
        """Write one entry with everything acknowledged so far; soon, if it has to be encoded in steps."""
        state, chain = self._require_state(), self._chain
        assert chain is not None, "it begins with the ledger"
        if state.batches.is_large and chain.is_whole(state) and is_slow(state):
            self._services.nursery.start_soon(self._encode, writer, state, chain, name=f"encode cursor {self._name}")
        else:
            self._append_now(writer, state, chain)

    async def _encode(self, writer: Writer, state: AckState, chain: EntryChain) -> None:
        await encode_pages(state)
        if writer is self._writer:  # it has not failed meanwhile
            self._append_now(writer, state, chain)

    def _append_now(self, writer: Writer, state: AckState, chain: EntryChain) -> None:
        self._in_flight, self._waiting = self._in_flight + self._waiting, []
        self._in_flight_mark_delete = state.mark_delete
        self._dirty = self._again = False
        try:
            data = chain.next_entry(state, writer.last_pushed + 1)
            self.entries_written, chain.sent_at = self.entries_written + 1, trio.current_time()
            self.bytes_written += len(data)
            writer.append([data])
        except CursorTooLargeError as error:
            self._log.error("cursor does not fit an entry", reason=str(error))
            state.rewrite()
            self._dirty = True
            self._finish(error)
        except LedgerError as error:
            self._failed(error)

    def _confirmed(self, first: int, last: int) -> None:
        """Record a confirmed entry of the current cursor ledger; an abandoned one reports nothing."""
        if self.node.empty_ledger_id != NO_LEDGER:
            self.node.empty_ledger_id = NO_LEDGER
            self._delete_useless_ledgers()
        self._node_is_state = False
        self._services.note_stored(self._chain)
        self._durable(self._in_flight_mark_delete)
        self._finish(None)

    def _durable(self, mark_delete: Position) -> None:
        if mark_delete != self.durable_mark_delete:
            before, self.durable_mark_delete = self.durable_mark_delete, mark_delete
            self.on_durable(mark_delete < before)

    def _finish(self, error: CursorError | None) -> None:
        """Report the outcome of the write in flight, and continue with changes made meanwhile."""
        self._busy = False
        settled, self._in_flight = self._in_flight, []
        for callback in settled:
            callback(error)
        if self._busy:
            return  # a callback requested another flush
        if self._idle is not None:
            self._idle.set()
            self._idle = None
        if self._waiting or (self._again and self._dirty):
            self._pump()

    def _failed(self, error: LedgerError) -> None:
        """Abandon a failed cursor ledger: everything unconfirmed goes into a new one."""
        writer = self._leave()
        if writer is None:
            return  # an append raises the failure that was reported before it
        self._log.warning("cursor ledger failed", ledger=writer.ledger_id, reason=str(error))
        if self._switched is not None and not self._switched.is_set():
            return  # its successor is being created already, or the node is rewritten: two writes would collide
        if self._busy:
            self._waiting = self._in_flight + self._waiting
            self._in_flight = []
            self._dirty = True
            self._start_switch()

    # A new cursor ledger

    def _start_switch(self) -> None:
        switched = self._switched = trio.Event()
        self._services.nursery.start_soon(self._switch, switched, name=f"new ledger for cursor {self._name}")

    async def _switch(self, switched: trio.Event) -> None:
        writer: Writer | None = None
        try:
            writer = await self._make_ledger()
        finally:
            switched.set()
            if self._switched is switched:
                self._switched = None
        if writer is not None and self._broken is None:
            self._begin(writer)  # after the switch has ended, because its first entry may fail, too

    async def _make_ledger(self) -> Writer | None:
        """Create a ledger and name it in the node, for up to `retry_timeout_s`; None: given up, or broken."""
        deadline = trio.current_time() + self._services.config.retry_timeout_s
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._services.world.rng)
        while self._broken is None:
            try:
                return await self.node.new_ledger(self._require_state())
            except _TAKEN as error:
                self._fence(f"its node was changed by another: {error}")
            except (LedgerError, MetadataError) as error:
                pause_s = backoff.next()
                if trio.current_time() + pause_s > deadline:
                    self._give_up(error)
                    return None
                await trio.sleep(pause_s)
        return None

    def _begin(self, writer: Writer) -> None:
        self._leave()
        writer.on_confirmed = self._confirmed
        writer.on_failed = self._failed
        self._writer, self._writer_since = writer, trio.current_time()
        self._chain = EntryChain()
        self._append(writer)

    def _leave(self) -> Writer | None:
        """Ignore the former ledger from now on."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.on_confirmed = ignore_confirmed
            writer.on_failed = ignore_failed
        return writer

    def _give_up(self, error: Exception) -> None:
        """Report the failure to the callers; the state stays dirty and is retried later."""
        self._log.warning("cursor not stored, retrying later", reason=str(error))
        self._in_flight, self._waiting = self._in_flight + self._waiting, []
        self._again = False
        self._finish(CursorPersistError(f"cursor {self._name} could not be stored: {error}"))
        self.changed()

    def _delete_useless_ledgers(self) -> None:
        if useless := self.node.useless_ledger_ids():
            self._services.nursery.start_soon(self.node.delete_ledgers, useless, name=f"old ledgers of {self._name}")

    async def change_node(self, change: Callable[[CursorNode], CursorNode]) -> None:
        """Change what the node says beside the state; durable on return. Raises CursorError."""
        await self.settle()
        if self._broken is not None:
            raise self._broken
        self._busy = True
        done = self._switched = trio.Event()
        try:
            await self.node.rewrite(self._require_state(), change)
        except _TAKEN as error:
            self._fence(f"its node was changed by another: {error}")
            raise CursorFencedError(f"cursor {self._name}: {error}") from error
        except MetadataError as error:
            raise CursorPersistError(f"cursor {self._name} could not be stored: {error}") from error
        finally:
            done.set()
            if self._broken is None:
                self._finish(None)

    def rest(self) -> None:
        if self._writer is not None:
            self._writer.rest()

    # The end

    def _fence(self, reason: str) -> None:
        if self._broken is None:
            self._log.warning("cursor is fenced", reason=reason)
            self.stop(CursorFencedError(f"cursor {self._name}: {reason}"))
            self._on_fenced()

    def stop(self, error: CursorError) -> None:
        """Stop writing; report `error` to the waiting callers."""
        self._broken = self._broken or error
        self._leave()
        self._in_flight, self._waiting = self._in_flight + self._waiting, []
        self._finish(self._broken)

    async def settle(self) -> None:
        """Wait until nothing is in flight, and no ledger is being created."""
        while True:
            if self._busy and self._idle is None:
                self._idle = trio.Event()
            event = self._idle if self._busy else self._switched
            if event is None or event.is_set():
                return
            await event.wait()

    async def end(self) -> tuple[list[int], Delete]:
        """Return every ledger of a stopped store whose cursor is to be deleted, and the deletion of its node, which
        fails if the node has changed since. Raises MetadataError."""
        await self.settle()
        return await self.node.end()

    @property
    def closes_at_once(self) -> bool:
        """Return whether `close` would only stop: nothing is to be stored or waited for."""
        waits = self._busy or (self._switched is not None and not self._switched.is_set())
        return not waits and (self._broken is not None or (self._node_is_state and not self._dirty))

    async def close(self) -> None:
        """Store the state in the node for the next open, and stop. After any error (CursorError, LedgerError,
        MetadataError) the next open finds the last durable state."""
        try:
            await self.settle()
            if self._broken is None and (self._dirty or not self._node_is_state):
                state = self._require_state()
                if node_takes(state, self._services.config.node_ranges_max):
                    await self._close_into_node(state)
                else:
                    await self._close_into_ledger()
        finally:
            self.stop(CursorClosedError(f"cursor {self._name} is closed"))

    async def _close_into_node(self, state: AckState) -> None:
        self._closing = True
        try:
            await self.node.put_state(state)
        except _TAKEN as error:
            self._fence(f"its node was changed by another: {error}")
            return
        self._in_node(state)
        answered, self._waiting = self._waiting, []
        for callback in answered:
            callback(None)
        await self.node.delete_ledgers(self.ledger_ids())

    async def _close_into_ledger(self) -> None:
        if self._dirty:
            await self.wait_persisted()
            await self.settle()
        self._closing = True
        writer = self._leave()
        if writer is not None:
            await writer.close()

    async def wait_persisted(self) -> None:
        """Wait until everything acknowledged so far is durable. Raises CursorError."""
        await wait_for(self.persisted)

    def _in_node(self, state: AckState) -> None:
        """Record that the node holds the whole state."""
        self._dirty = False
        self._node_is_state = True
        self._durable(state.mark_delete)

    def _require_state(self) -> AckState:
        assert self._state is not None, "create or recover the cursor first"
        return self._state


def _nothing(back: bool) -> None:
    pass
