"""Reads that wait for new entries: version 3's READ with a previous LAC.

A long poll is answered when the LAC exceeds the previous one, when the ledger is fenced, or when its time is over. The
answer has entry previous LAC + 1 if that was requested (piggyback) and is here, else the LAC alone. Without piggyback
an ordinary read begins then. The number of long polls over all sessions is bounded.

Source: BookKeeper's LongPollReadEntryProcessorV3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from bookie.requests import LAST_ENTRY
from bookie.sessions.entry_reads import last_confirmed, read_if_here
from bookie.sessions.ports import Version3Session
from bookie.timers import Timer
from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc


class Reads(Protocol):
    """Interface for serving and answering a session's reads."""

    def serve_read(self, request: v3.ReadRequest) -> None: ...

    def answer_read(self, request: v3.ReadRequest, entry: Buffer | None, rc: Rc) -> None: ...

    def put_read(
        self,
        request: v3.ReadRequest,
        entry_id: int,
        entry: Buffer | None,
        rc: Rc,
        max_lac: int | None = None,
        updated_ms: int | None = None,
    ) -> None: ...


class LongPoll:
    """A read that waits for the LAC to advance."""

    __slots__ = ("request", "timer", "updated_ms", "waiter")

    def __init__(self, request: v3.ReadRequest) -> None:
        self.request = request
        self.timer: Timer | None = None
        self.waiter: Callable[[bool], None] | None = None
        self.updated_ms: int | None = None
        """Time at which the LAC advanced, if it did during the wait."""


class LongPolls:
    """Long polls of one session."""

    def __init__(self, session: Version3Session, reads: Reads) -> None:
        self._session = session
        self._bookie = session.bookie
        self._reads = reads
        self._polls: dict[LongPoll, None] = {}  # a dict keeps the order of arrival, a set does not

    def close(self) -> None:
        """End all long polls: the peer has disconnected."""
        for poll in self._polls:
            self._end(poll)
        self._polls.clear()

    def begin(self, request: v3.ReadRequest) -> None:
        """Begin a READ with a previous LAC that does not fence."""
        storage = self._bookie.storage
        ledger_id = request.ledger_id
        if request.piggyback and request.entry_id != LAST_ENTRY:
            self._reads.answer_read(request, None, Rc.BAD_REQUEST)
        elif storage.master_key(ledger_id) is None:
            self._reads.answer_read(request, None, Rc.NO_LEDGER)
        elif self._bookie.lacs.known(ledger_id) is not None:
            self._wait(request)
        else:
            self._bookie.lacs.follow(ledger_id)
            job = partial(last_confirmed, storage, ledger_id)
            rc = self._session.by_worker(job, partial(self._lac_found, request), ledger_id, request.flags)
            if rc is not Rc.OK:
                self._reads.answer_read(request, None, rc)

    def _lac_found(self, request: v3.ReadRequest, lac: int | None, rc: Rc) -> None:
        if lac is None:
            self._reads.answer_read(request, None, rc)
        else:
            self._bookie.lacs.learned(request.ledger_id, lac)
            self._wait(request)

    def _wait(self, request: v3.ReadRequest) -> None:
        """Wait until the known LAC advances; answer at once if it has, or if there is nothing to wait for."""
        bookie = self._bookie
        ledger_id, previous = request.ledger_id, request.previous_lac
        lac = bookie.lacs.known(ledger_id)
        assert previous is not None
        poll = LongPoll(request)
        if lac is None or lac > previous or bookie.storage.is_fenced(ledger_id) or request.timeout_ms is None:
            self._serve_poll(poll)
        elif bookie.long_polls >= bookie.config.long_polls_max:
            self._reads.answer_read(request, None, Rc.TOO_MANY_REQUESTS)
        else:
            bookie.long_polls += 1
            bookie.stats.long_polls += 1
            self._polls[poll] = None
            poll.waiter = partial(self._moved, poll)
            bookie.lacs.wait(ledger_id, previous, poll.waiter)
            deadline = trio.current_time() + request.timeout_ms / 1000
            poll.timer = bookie.timers.at(deadline, partial(self._waited_enough, poll))

    def _end(self, poll: LongPoll) -> None:
        """End the wait of a long poll."""
        self._bookie.long_polls -= 1
        assert poll.timer is not None
        assert poll.waiter is not None
        poll.timer.cancel()
        self._bookie.lacs.cancel(poll.request.ledger_id, poll.waiter)

    def _moved(self, poll: LongPoll, moved: bool) -> None:
        if moved:
            poll.updated_ms = self._bookie.world.clock.wall_ms()
        self._waited_enough(poll)
        # The add that advanced the LAC is in a pass of its own, which may end with a sync. Do not wait for that sync.
        self._session.flush_if_idle()

    def _waited_enough(self, poll: LongPoll) -> None:
        self._polls.pop(poll, None)
        self._end(poll)
        self._serve_poll(poll)
        self._session.flush_later()

    def _serve_poll(self, poll: LongPoll) -> None:
        request = poll.request
        ledger_id, previous = request.ledger_id, request.previous_lac
        lac = self._bookie.lacs.known(ledger_id)
        assert previous is not None
        if not request.piggyback or lac is None:
            self._reads.serve_read(request)
        elif lac <= previous:
            self._reads.put_read(request, LAST_ENTRY, None, Rc.OK, lac)
        else:
            entry_id = previous + 1
            entry = self._bookie.storage.reader.get_cached(ledger_id, entry_id)
            if entry is not None:
                self._bookie.stats.reads_cached += 1
                self._reads.put_read(request, entry_id, entry, Rc.OK, lac, poll.updated_ms)
                return
            job = partial(read_if_here, self._bookie.storage, ledger_id, entry_id)
            done = partial(self._piggyback_read, poll, entry_id, lac)
            rc = self._session.by_worker(job, done, ledger_id, request.flags)
            if rc is not Rc.OK:
                self._reads.answer_read(request, None, rc)

    def _piggyback_read(self, poll: LongPoll, entry_id: int, lac: int, found: list[Buffer] | None, rc: Rc) -> None:
        """Read the piggyback entry.

        In a striped ledger it is often on another bookie, so the LAC alone is an answer too.
        """
        if found is None:
            self._reads.answer_read(poll.request, None, rc)
        elif found:
            self._reads.put_read(poll.request, entry_id, found[0], Rc.OK, lac, poll.updated_ms)
        else:
            self._reads.put_read(poll.request, LAST_ENTRY, None, Rc.OK, lac, poll.updated_ms)
