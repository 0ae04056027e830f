"""One connection's requests: adds by run into the write cache and the journal, reads from memory or by a worker.

    ADD      checks -> write cache -> journal -> (group synced) -> answers, all of a pass in one write (adds.py)
    READ     memory, answered in this pass; otherwise a worker reads the entry log
    fence    storage updated -> FENCE record in the journal -> (group synced) -> the read's answer, found or not

Answers to adds are in the order of the adds. Answers to reads are sent when they are ready, as in the original.

The first frame decides the version. It is 3 if the frame begins like a message of version 3, until a frame does not;
from then on it is 2. This module has what both versions share, and version 2; version_3.py has the rest.

A peer that requests more than it receives, or sends more than can be stored, is paused if the session has a shell that
can pause it (`on_room`). Its requests wait here until its answers are sent and its adds have found room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, TypeVar

from bookie.adds import Add, AddDone
from bookie.reads import SHARE
from bookie.requests import LAST_ENTRY, batch_limits, check_read
from bookie.sessions.entry_reads import read_entries
from bookie.sessions.ports import SessionBookie
from bookie.sessions.version_3 import Version3
from quire.service.log import get_logger
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.auth import NO_AUTHENTICATION, auth_message
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import DO_FENCING, HIGH_PRIORITY, Opcode, Rc

log = get_logger(__name__)

T = TypeVar("T")

URGENT: Final = HIGH_PRIORITY | DO_FENCING
"""Flags of reads that have workers of their own: recovery does not wait behind catch-up reads."""
_AUTH_ANSWER: Final = v2.auth_response(auth_message(NO_AUTHENTICATION, b""))
"""Answer of a session: it has no authentication, or was authenticated before it began (authentication.py)."""
OUT_MAX: Final = 4 << 20
"""Bytes of answers of one pass at which the peer's next requests wait until it has received some."""
_READ_SIZE_MIN: Final = 1024
READING_MAX: Final = 32 << 20
"""Bytes that workers may be reading for one peer, estimated by the size of its last answer, before its next requests
wait.
"""
REQUESTS_PER_PASS: Final = 500
"""Requests of one peer, a run of adds counting as one, that are served before the event loop does something else: a
chunk has thousands of small ones, each of which may take 10 us.
"""
ADDS_WAITING_MAX: Final = 1 << 20
"""Bytes of a peer's adds that may wait for room before nothing more is received from it."""


class BookieSession:
    """Bookie side of one connection. `write` receives buffers that hold whole frames end to end, and must not raise."""

    def __init__(
        self, bookie: SessionBookie, write: Callable[[list[Buffer]], None], *, peer: str = "this process"
    ) -> None:
        """`peer`: the client's address, for the log."""
        self.bookie = bookie
        self._peer = peer
        self._write = write
        self.out: list[Buffer] = []
        """Answers that leave with the next `flush`, whole frames."""
        self._acks: tuple[int, int, int, int] | None = None
        """Answers to version 2's adds not yet put into `out`: rc, ledger id, first and last entry id."""
        self._decode: Callable[[v2.Frame], list[Any]] = self._decode_first
        self._serve: Callable[[Any], None] = self._request
        self._version_3: Version3 | None = None
        self._frame: v2.Frame = b""
        """Last frame of version 3."""
        self._rest: Iterator[Any] | None = None
        """Requests that wait for room."""
        self._out_size = 0
        self._reading = 0
        """Bytes that workers are reading for this session."""
        self._read_size = _READ_SIZE_MIN
        """Assumed size of a read: the size of the last answer."""
        self._receiving = False
        self._counts_reads = bookie.config.reads_in_progress_max > 0
        self._wanted: list[tuple[int, int]] = []
        """Single entries (ledger id, entry id) for workers to read, gathered in this pass."""
        self._wanted_urgently: list[tuple[int, int]] = []
        """The same for reads of recoveries."""
        self.adds_waiting = 0
        """Bytes of adds that wait for room; `Adds` counts them."""
        self.on_room: Callable[[], None] | None = None
        """Called when a paused session may be able to continue; None: the session is never paused."""
        self.closed = False
        """True if nothing is answered any more: the peer disconnected, or sent something that is not this protocol."""
        self.is_dirty = False
        """True if the bookie knows that there are answers to send at the end of its pass."""

    def receive(self, frames: Sequence[v2.Frame]) -> None:
        """Serve the requests in `frames`, each a buffer of whole frames or a (head, payload) pair of one big ADD.
        Buffers must not change later if they hold entries above LENT_MAX. Not while the session is paused.
        """
        self._receiving = True
        self.bookie.journal.hold()
        try:
            for frame in frames:
                if self.closed:
                    break
                requests = self._decode(frame)
                if len(requests) == 1 and type(requests[0]) is Run:
                    self.bookie.stats.frames += requests[0].count
                    self.bookie.adds.add(Add(requests[0], False, self._added, self))
                else:
                    self._go_through(iter(requests))
        finally:
            self._end_pass()

    @property
    def is_paused(self) -> bool:
        """Return whether requests wait for room: call `resume` before the next `receive`."""
        return self._rest is not None or (self.adds_waiting > ADDS_WAITING_MAX and self.on_room is not None)

    @property
    def has_room(self) -> bool:
        """Return whether a paused session may continue, as far as its reads and adds are concerned."""
        return self.closed or (
            self._reading <= READING_MAX // 2
            and self.adds_waiting <= ADDS_WAITING_MAX // 2
            and not self._has_too_many_reads()
        )

    def _has_too_many_reads(self) -> bool:
        """Return whether as many reads of all sessions are in progress as may be."""
        gathered = len(self._wanted) + len(self._wanted_urgently)
        return self.bookie.read_limit.is_reached(self.bookie.reads_in_flight + gathered)

    def resume(self) -> None:
        """Serve requests that had to wait, as far as there is room."""
        rest, self._rest = self._rest, None
        if self._counts_reads:
            self.bookie.read_limit.forget(self)
        if rest is not None and not self.closed:
            self._receiving = True
            self.bookie.journal.hold()
            try:
                self._go_through(rest)
            finally:
                self._end_pass()

    def _end_pass(self) -> None:
        self._receiving = False
        self.bookie.journal.let_go()
        if self._wanted or self._wanted_urgently:
            self._begin_reads()
        if self.out or self._acks is not None:
            self.flush()

    def close(self) -> None:
        """Stop answering. Requests already received are still carried out."""
        self.closed = True
        self.out = []
        self._acks = None
        self._rest = None
        self._wanted = []
        self._wanted_urgently = []
        if self._version_3 is not None:
            self._version_3.close()
        self.bookie.read_limit.forget(self)
        if self.on_room is not None:
            self.on_room()

    def flush(self) -> None:
        """Write the gathered answers."""
        self.is_dirty = False
        if self._acks is not None:
            self._put_acks()
        if self.out:
            out, self.out = self.out, []
            self._out_size = 0
            self._write(out)

    def put(self, parts: Sequence[Buffer], size: int) -> None:
        """Add an answer, a whole frame, that carries `size` bytes of entries."""
        self._out_size += size
        self.out += parts

    def flush_if_idle(self) -> None:
        """Write the gathered answers, unless a pass of this session is in progress and will do so."""
        if not self._receiving:
            self.flush()

    def flush_later(self) -> None:
        """Request that answers be written at the end of this pass."""
        if not self._receiving and not self.is_dirty:
            self.bookie.passes.flush_later(self)

    # --- versions

    def _decode_first(self, frame: v2.Frame) -> list[v2.Request] | list[v3.Request]:
        """Choose the version by the first frame; all later frames have it."""
        if not len(frame):
            return []  # only half a frame has arrived: its version is not certain before it is complete
        if v3.is_version_3(frame):
            self._version_3 = Version3(self)
            self._serve = self._version_3.serve
            self._decode = self._decode_3
        else:
            self._decode = v2.decode_requests
        return self._decode(frame)

    def _decode_3(self, frame: v2.Frame) -> list[v3.Request]:
        self._frame = frame
        return v3.decode_requests(frame)

    def not_version_3(self, position: int) -> None:
        """Switch permanently to version 2, from `position` of the last frame on."""
        frame, self._frame = self._frame, b""
        self.bookie.stats.frames -= 1  # the same bytes count again
        self._serve = self._request
        self._decode = v2.decode_requests
        rest = b"".join(frame) if isinstance(frame, tuple) else memoryview(frame)[position:]
        self._go_through(iter(v2.decode_requests(rest)))

    def _go_through(self, requests: Iterator[Any]) -> None:
        for served, request in enumerate(requests):
            if served >= REQUESTS_PER_PASS and self.on_room is not None:
                self._pause(chain((request,), requests))
                return
            if self._counts_reads and self.on_room is not None and self._has_too_many_reads():
                self._pause(chain((request,), requests), for_reads=True)
                return
            if type(request) is Run:
                self.bookie.stats.frames += request.count
                self.bookie.adds.add(Add(request, False, self._added, self))
                continue
            self.bookie.stats.frames += 1
            self._serve(request)
            if self.closed:
                return
            if self.on_room is not None and (self._out_size > OUT_MAX or self._reading > READING_MAX):
                self._pause(requests)
                return

    def _pause(self, rest: Iterator[Any], *, for_reads: bool = False) -> None:
        self._rest = rest
        if self._counts_reads:  # whatever it waits for, it cannot go on before there are few enough reads
            self.bookie.read_limit.pause(self, waits=for_reads)

    def _request(self, request: v2.Request) -> None:
        """Serve one request of version 2, except adds."""
        if isinstance(request, v2.ReadRequest):
            self._read(request)
        elif isinstance(request, v2.BatchReadRequest):
            self._batch_read(request)
        elif isinstance(request, v2.AuthRequest):
            self.out.append(_AUTH_ANSWER)
        elif isinstance(request, v2.Unsupported):
            opcode, ledger_id, entry_id, rc = request
            self.out.append(v2.response_head(opcode, rc, ledger_id, entry_id))
        elif isinstance(request, v2.Malformed):
            if self.bookie.rare_lines.admits("not the bookie protocol", self._peer):
                log.info("connection closed: not the bookie protocol", connection=self._peer, reason=request.reason)
            self.flush()
            self.close()

    # --- adds

    def store(self, run: Run, done: AddDone, *, deferred: bool = False) -> None:
        """Add a run to write cache and journal, or let it wait for room there: `done` receives the outcome."""
        self.bookie.adds.add(Add(run, deferred, done, self))

    def adds_left(self) -> None:
        """Called by `Adds` when fewer adds wait."""
        if self.on_room is not None and self.has_room:
            self.on_room()

    def _added(self, run: Run, rc: Rc) -> None:
        """Answer a run that is on disk or has failed, together with the run before it if the two are adjacent."""
        if self.closed:
            return
        ledger_id, first = run.ledger_id, run.first
        last = first + run.count - 1
        acks = self._acks
        if acks is not None:
            if acks[3] + 1 == first and acks[1] == ledger_id and acks[0] == rc:
                self._acks = (rc, ledger_id, acks[2], last)
                return
            self._put_acks()
        self._acks = (rc, ledger_id, first, last)
        if not self.is_dirty and not self._receiving:
            self.bookie.passes.flush_later(self)

    def _put_acks(self) -> None:
        assert self._acks is not None
        rc, ledger_id, first, last = self._acks
        self._acks = None
        self.out.append(v2.add_responses(rc, ledger_id, range(first, last + 1)))

    # --- reads

    def _read(self, request: v2.ReadRequest) -> None:
        ledger_id, entry_id, flags, key = request
        self.bookie.stats.reads += 1
        if flags & v2.DO_FENCING:
            self.bookie.fence(ledger_id, key, partial(self._fenced, ledger_id, entry_id, flags))
        else:
            self._serve_read(ledger_id, entry_id, flags)

    def _fenced(self, ledger_id: int, entry_id: int, flags: int, rc: Rc) -> None:
        """Answer the read of a fence: the FENCE record is durable or has failed.

        Only now it is answered, even without such an entry.
        """
        if self.closed:
            return
        if rc is Rc.OK:
            self._serve_read(ledger_id, entry_id, flags)
        else:
            self._answer_read(ledger_id, entry_id, None, rc)
        self.flush_later()

    def _serve_read(self, ledger_id: int, entry_id: int, flags: int) -> None:
        storage = self.bookie.storage
        rc = check_read(storage.master_key(ledger_id) is not None, entry_id)
        if rc is not Rc.OK:
            self._answer_read(ledger_id, entry_id, None, rc)
            return
        entry: memoryview | None = None
        if entry_id != LAST_ENTRY:
            entry = storage.reader.get_cached(ledger_id, entry_id)
        if entry is not None:
            self.bookie.stats.reads_cached += 1
            self._answer_read(ledger_id, entry_id, entry, Rc.OK)
            return
        (self._wanted_urgently if flags & URGENT else self._wanted).append((ledger_id, entry_id))
        self._reading += self._read_size
        if not self._receiving:
            self._begin_reads()

    def _begin_reads(self) -> None:
        """Pass the gathered reads to workers, in shares: each share is one job, with one thread switch."""
        if self._wanted:
            wanted, self._wanted = self._wanted, []
            self._begin_shares(wanted, urgent=False)
        if self._wanted_urgently:
            wanted, self._wanted_urgently = self._wanted_urgently, []
            self._begin_shares(wanted, urgent=True)

    def _begin_shares(self, wanted: list[tuple[int, int]], *, urgent: bool) -> None:
        bookie = self.bookie
        guess = self._read_size
        for group in bookie.storage.by_directory(wanted):
            ledger_id = group[0][0]
            room = min(bookie.read_room(ledger_id, urgent=urgent), len(group))
            for start in range(0, room, SHARE):
                share = group[start : min(start + SHARE, room)]
                count = len(share)
                done = partial(self._read_done, partial(self._answer_reads, share), guess, count)
                job = partial(read_entries, bookie.storage, share)
                bookie.read_by_worker(job, done, ledger_id, urgent=urgent, count=count)
            bookie.stats.reads_rejected += len(group) - room
            for ledger_id, entry_id in group[room:]:
                self._reading -= guess
                self._answer_read(ledger_id, entry_id, None, Rc.TOO_MANY_REQUESTS)

    def _answer_reads(self, share: list[tuple[int, int]], found: list[tuple[Buffer | None, Rc]] | None, rc: Rc) -> None:
        for (ledger_id, entry_id), (entry, entry_rc) in zip(share, found or repeat((None, rc)), strict=False):
            self._answer_read(ledger_id, entry_id, entry, entry_rc)

    def _answer_read(self, ledger_id: int, entry_id: int, entry: Buffer | None, rc: Rc) -> None:
        if entry is None:
            self.out.append(v2.response_head(Opcode.READ, rc, ledger_id, entry_id))
            return
        size = len(entry)
        self.put((v2.response_head(Opcode.READ, rc, ledger_id, entry_id, size), entry), size)

    def _batch_read(self, request: v2.BatchReadRequest) -> None:
        self.bookie.stats.reads += 1
        if request.flags & v2.DO_FENCING:
            self.bookie.fence(request.ledger_id, request.master_key, partial(self._batch_fenced, request))
        else:
            self._serve_batch_read(request)

    def _batch_fenced(self, request: v2.BatchReadRequest, rc: Rc) -> None:
        if self.closed:
            return
        if rc is Rc.OK:
            self._serve_batch_read(request)
        else:
            self.out.append(v2.batch_response_head(rc, request.ledger_id, request.entry_id, request.request_id))
        self.flush_later()

    def _serve_batch_read(self, request: v2.BatchReadRequest) -> None:
        bookie = self.bookie
        storage = bookie.storage
        ledger_id, first, request_id, flags = request.ledger_id, request.entry_id, request.request_id, request.flags
        rc = check_read(storage.master_key(ledger_id) is not None, first)
        if first < 0:
            rc = Rc.BAD_REQUEST
        if rc is not Rc.OK:
            self.out.append(v2.batch_response_head(rc, ledger_id, first, request_id))
            return
        count_max, size_max = batch_limits(request, bookie.config.batch_read_size_max)
        cached = storage.reader.read_cached(ledger_id, first, count_max, size_max)
        if cached.is_whole:
            bookie.stats.reads_cached += 1
            self._answer_batch(ledger_id, first, request_id, cached.parts, Rc.OK)
            return
        job = partial(storage.reader.read_run, ledger_id, first, count_max, size_max, cached)
        rc = self.by_worker(job, partial(self._answer_batch, ledger_id, first, request_id), ledger_id, flags)
        if rc is not Rc.OK and cached.entries:
            self._answer_batch(ledger_id, first, request_id, cached.parts, Rc.OK)
        elif rc is not Rc.OK:
            self.out.append(v2.batch_response_head(rc, ledger_id, first, request_id))

    def _answer_batch(self, ledger_id: int, first: int, request_id: int, parts: list[Buffer] | None, rc: Rc) -> None:
        parts = parts or []
        size = sum(map(len, parts))
        self.put((v2.batch_response_head(rc, ledger_id, first, request_id, size), *parts), size)

    # --- workers

    def by_worker(self, job: Callable[[], T], done: Callable[[T | None, Rc], None], ledger_id: int, flags: int) -> Rc:
        """Run `job`, which reads the ledger, in a worker; then call `done` with its result, or None and the reason.

        Return Rc.OK, or the reason why no worker accepts it.
        """
        guess = self._read_size
        answered = partial(self._read_done, done, guess, 1)
        if not self.bookie.read_by_worker(job, answered, ledger_id, urgent=flags & URGENT != 0):
            self.bookie.stats.reads_rejected += 1
            return Rc.TOO_MANY_REQUESTS
        self._reading += guess
        return Rc.OK

    def _read_done(
        self, done: Callable[[T | None, Rc], None], guess: int, count: int, result: T | None, rc: Rc
    ) -> None:
        self._reading -= guess * count
        if self.closed:
            return
        before = self._out_size
        done(result, rc)
        self._read_size = max((self._out_size - before) // count, _READ_SIZE_MIN)
        self.flush_later()
        if self._rest is not None and self.has_room and self.on_room is not None:
            self.on_room()
