"""The switch of one log from its ledger to the next: a task from the last entry of one to the first of the other.

    drain: wait for what was sent -> close the ledger left -> confirm what its end proves, queue the rest again
    -> the next ledger, made ahead or by the very write that puts it into the list -> begin

It is tried again until `retry_timeout_s`; then the queued appends fail, and the next append starts another. What the
ledger left behind, an unclosed end or a reason to wait, is kept from one switch to the next.

What holds: OnlyOneLedgerOpenAtATime and NoOutOfOrderEntries, as `appends` says: `begin` comes after the close, and what
was not confirmed is queued in front. After a fence nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import trio

from cursors.doors import Writer
from cursors.topic_log import topic_log
from managed_ledger.errors import (
    LedgerIdOrderError,
    ManagedLedgerError,
    ManagedLedgerFencedError,
    ManagedLedgerUnavailableError,
)
from managed_ledger.log_index import NO_LEDGER, LogIndex
from managed_ledger.stored_list import StoredList
from managed_ledger.writing.barren import RETRY_FIRST_S, RETRY_MAX_S, BarrenLedgers
from managed_ledger.writing.ledger_ahead import LedgerAhead
from managed_ledger.writing.pending import PendingAppends
from managed_ledger.writing.predecessor import Predecessor
from managed_ledger.writing.state import AppendListener, State
from quire.ledger.errors import LedgerConflictError, LedgerError, LedgerFencedError
from quire.metadata.errors import MetadataError
from quire.service.log import Logger, get_logger
from quire.world.backoff import Backoff
from quire.world.doors import Buffer, World

log = get_logger(__name__)


class Switched(Protocol):
    """Parts of the writing side that a switch uses; see `appends.Appends`."""

    state: State
    writer: Writer | None
    pending: PendingAppends

    @property
    def all_are_closed(self) -> bool: ...

    def confirmed(self, first: int, last: int) -> None: ...

    def begin(self, writer: Writer) -> None: ...

    def terminated(self) -> None: ...

    def fence(self, reason: str) -> None: ...


class Switching:
    """The switches of one log, one at a time."""

    __slots__ = (
        "_ahead",
        "_appends",
        "_barren",
        "_drained",
        "_failed_writer",
        "_failure",
        "_index",
        "_listener",
        "_name",
        "_no_room",
        "_nursery",
        "_retry_timeout_s",
        "_settled",
        "_stored",
        "_unclosed",
        "_world",
        "trouble",
    )

    def __init__(
        self,
        appends: Switched,
        name: str,
        world: World,
        nursery: trio.Nursery,
        stored: StoredList,
        index: LogIndex,
        listener: AppendListener,
        retry_timeout_s: float,
        no_room: Callable[[], str],
    ) -> None:
        self._appends = appends
        self._name = name
        self._world = world
        self._nursery = nursery
        self._stored = stored
        self._index = index
        self._listener = listener
        self._retry_timeout_s = retry_timeout_s
        self._no_room = no_room
        self._ahead: LedgerAhead | None = None
        """Set after the first ledger that is nearly full."""
        self._failed_writer: Writer | None = None
        """The current or previous ledger, if it failed."""
        self._failure = ""
        self._barren: BarrenLedgers | None = None
        """Set after the first ledger that fails without an entry."""
        self._unclosed: Predecessor | None = None
        """The previous ledger, until it is closed and marked so in the list."""
        self._drained: trio.Event | None = None
        """Set while `drain` waits."""
        self._settled: trio.Event | None = None
        """Set from the first switch on: the last one."""
        self.trouble = ""
        """Why the last attempt of this switch failed; "": none did."""

    @property
    def _log(self) -> Logger:
        return topic_log(log, self._name)

    def want_ahead(self) -> None:
        """Create the next ledger in the background, because the current one is nearly full."""
        if self._ahead is None:
            appends = self._appends
            self._ahead = LedgerAhead(self._name, self._nursery, self._stored, lambda: appends.state is State.OPEN)
        self._ahead.want()

    def failed(self, error: LedgerError) -> None:
        """Abandon a failed ledger: unconfirmed entries go into the next one."""
        writer = self._appends.writer
        if writer is None or writer is self._failed_writer:
            return
        self._failed_writer = writer
        self._failure = str(error)
        if self._appends.state is State.OPEN:
            self._log.warning("ledger failed", ledger=writer.ledger_id, reason=str(error))
            self.start()
        if self._unclosed is not None and isinstance(error, LedgerFencedError | LedgerConflictError):
            self._unclosed.contested = True
        self.drained()

    @property
    def left(self) -> Writer | None:
        """Return the previous ledger, until it is closed and marked so in the list."""
        return None if self._unclosed is None else self._unclosed.writer

    def uncontested(self) -> Writer | None:
        """Return the previous ledger, if it is this log that has to close it."""
        return None if self._unclosed is None or self._unclosed.contested else self._unclosed.writer

    def start(self) -> None:
        """Begin a switch, unless one is under way or the log takes nothing."""
        if self._appends.state is State.OPEN:
            assert self._appends.writer is not None, "an open log has a ledger"
            self._unclosed = Predecessor(self._appends.writer)
        if self._appends.state in (State.OPEN, State.IDLE):
            first = self._appends.all_are_closed and bool(self._appends.pending)
            self._appends.state = State.SWITCHING
            self.trouble = ""
            settled = self._settled = trio.Event()
            self._nursery.start_soon(self._switch, settled, first, name=f"next ledger of {self._name}")

    async def _switch(self, settled: trio.Event, first: bool) -> None:
        """Switch to the next ledger.

        Queued appends may fill the next ledger at once, which begins the following switch in a task of its own.
        `first`: to the ledger of the first append after the open, when trimming would come too early."""
        deadline = await self._wait_if_barren()
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._world.rng)
        while self._appends.state is State.SWITCHING:
            try:
                await self._close_ledger()
                writer = await self._next_ledger()
            except ManagedLedgerFencedError as error:
                self._appends.fence(str(error))
            except LedgerIdOrderError as error:
                self._log.error("next ledger not created", reason=str(error))
                self._give_up(error)
            except (LedgerError, MetadataError) as error:
                self.trouble = str(error)
                pause_s = backoff.next()
                if trio.current_time() + pause_s > deadline:
                    self._give_up_for_now(str(error))
                else:
                    await trio.sleep(pause_s)
            else:
                if writer is not None:
                    self._appends.begin(writer)
                    if not first:
                        self._listener.on_switched()
                    break
        settled.set()

    async def _wait_if_barren(self) -> float:
        """Pause, or give up, before the ledger that follows one without any stored entry.

        Returns the time until which the creation of the next ledger may be retried."""
        now = trio.current_time()
        writer = self.left
        is_failed = writer is not None and writer is self._failed_writer
        if self._appends.pending and is_failed and (reason := self._no_room()):
            self._give_up_for_now(reason)
            return now
        if writer is None or writer is not self._failed_writer or writer.last_confirmed >= 0:
            self._barren = None
            return now + self._retry_timeout_s
        if self._barren is None:
            self._barren = BarrenLedgers(self._retry_timeout_s, self._world.rng)
        pause_s, deadline = self._barren.failed(now)
        if pause_s is None:
            self._give_up_for_now(self._failure)
        else:
            self.trouble = self._failure
            await trio.sleep(pause_s)
        return deadline

    async def _close_ledger(self) -> None:
        """Wait for pending appends, then close the old ledger. Unconfirmed appends wait for the next one."""
        before = self._unclosed
        if before is None:
            return
        writer = before.writer
        await self.drain(writer)
        if self._appends.state is not State.SWITCHING:
            return
        await before.close(self._stored)
        if self._appends.state is not State.SWITCHING:
            return
        known = self._index_entry(writer)
        if before.last_entry_id > known:
            assert writer is self._appends.writer, "until the next one is there, it is the current one"
            self._appends.confirmed(known + 1, before.last_entry_id)
        sent = self._appends.pending.sent
        while sent:
            run = sent.pop()
            if run.payloads is None:
                run.payloads = cast("list[Buffer]", writer.sealed(run.first, run.first + run.count - 1))
            self._appends.pending.enqueue(run, in_front=True)

    async def drain(self, writer: Writer) -> None:
        """Wait until everything sent is confirmed, or the ledger failed, or the state has changed."""
        state = self._appends.state
        while writer is not self._failed_writer and self._appends.pending.sent and self._appends.state is state:
            self._drained = trio.Event()
            await self._drained.wait()
        self._drained = None

    def _index_entry(self, writer: Writer) -> int:
        confirmed = self._index.last_confirmed
        return confirmed.entry_id if confirmed.ledger_id == writer.ledger_id else -1

    async def _next_ledger(self) -> Writer | None:
        """Store the list with the next ledger; return None if the log was fenced meanwhile."""
        stored, before = self._stored, self._unclosed
        async with stored.held():
            if self._appends.state is not State.SWITCHING:
                return None
            value = stored.value
            if before is not None:
                value = before.marked_in(value, self._world.clock.wall_ms())
            if before is not None and before.writer is self._failed_writer:
                self._drop_ahead()  # its bookies may include the failed ones
            ahead = self._ahead
            writer = None if ahead is None else ahead.take()
            if ahead is None or writer is None:
                self._drop_ahead()
                writer = await stored.new_ledger(value)
            else:
                try:
                    await stored.open_ahead(value, writer.ledger_id)
                except MetadataError:
                    ahead.give_back(writer)
                    raise
            if self._appends.state is not State.SWITCHING:
                return None  # the next owner recovers it
            self._unclosed = self._failed_writer = None
        return writer

    async def terminate(self) -> None:
        """Close the last ledger, and store the list with the end of the log, which no ledger follows.

        Raises ManagedLedgerFencedError, also if the outcome is unknown; LedgerError, MetadataError: not done."""
        appends = self._appends
        if appends.state is State.OPEN:
            assert appends.writer is not None, "an open log has a ledger"
            self._unclosed = Predecessor(appends.writer)
        appends.state = State.SWITCHING
        settled = self._settled = trio.Event()
        try:
            await self._close_ledger()
            async with self._stored.held():
                if appends.state is State.SWITCHING:
                    await self._store_end()
        except ManagedLedgerFencedError as error:
            appends.fence(str(error))
            raise
        finally:
            if appends.state is State.SWITCHING:
                self._give_up_for_now("it was being terminated")
            settled.set()
        self._listener.on_switched()

    async def _store_end(self) -> None:
        before, value = self._unclosed, self._stored.value
        if before is not None:
            value = before.marked_in(value, self._world.clock.wall_ms())
        self._drop_ahead()
        try:
            await self._stored.put(value.terminated_at(self._index.last_confirmed))
        except MetadataError as error:
            # If it is stored after all, nothing may be appended any more.
            raise ManagedLedgerFencedError(f"{self._name}: its end may be stored or not: {error}") from error
        self._unclosed = self._failed_writer = None
        self._index.set(self._stored.value.ledgers, NO_LEDGER)
        self._appends.terminated()

    def _drop_ahead(self) -> None:
        unneeded = self.unneeded()
        if unneeded is not None:
            self._listener.on_unneeded(unneeded)

    def _give_up_for_now(self, reason: str) -> None:
        self._log.warning("no next ledger for now", reason=reason)
        self._give_up(ManagedLedgerUnavailableError(f"{self._name} has no ledger to write to: {reason}"))

    def _give_up(self, error: ManagedLedgerError) -> None:
        """Fail the queued appends; the next append tries again."""
        self._appends.state = State.IDLE
        for sink in self._appends.pending.take_all():
            sink.failed(error)

    async def settled(self) -> None:
        """Wait until the last switch that was started has succeeded or failed."""
        assert self._settled is not None, "a switch says when it is done"
        await self._settled.wait()

    async def ahead_settled(self) -> None:
        """Wait until no ledger is being created ahead."""
        if self._ahead is not None:
            await self._ahead.settle()

    def drained(self) -> None:
        """Note that what `drain` waits for may have come."""
        if self._drained is not None:
            self._drained.set()

    @property
    def next_ledger_id(self) -> int:
        """Return the id of the ledger made ahead, which the list names for deletion until it is needed; -1: none."""
        return -1 if self._ahead is None else self._ahead.ledger_id

    def unneeded(self) -> int | None:
        """Drop a ledger that was made ahead; return its id, if there is one, which the list names for deletion."""
        return None if self._ahead is None else self._ahead.drop()


async def let_go(writer: Writer) -> None:
    """Abandon a writer and store nothing.

    Its close gives up unconfirmed entries, and is cancelled before it waits for anything. For a ledger that another
    broker has, or that must not be closed."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await writer.close()
