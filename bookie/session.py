"""One connection's requests: adds by run into the write cache and the journal, reads from memory or by a worker.

    ADD      checks -> write cache -> journal -> (group synced) -> answers, all of a pass in one write
    READ     memory, answered in this pass; otherwise a worker reads the entry log
    fence    storage told -> FENCE record in the journal -> (group synced) -> the read's answer, found or not

Answers to adds come in the order of the adds; answers to reads when they are ready, as in the original.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import (
    BookieError,
    JournalFailedError,
    NoEntryError,
    NoLedgerError,
    WriteCacheFullError,
)
from bookie.requests import LAST_ENTRY, batch_limits, check_add, check_fence, check_read
from bookie.run import Run
from quire.service.log import get_logger
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import FRAME_MAX, Opcode, Rc

if TYPE_CHECKING:
    from bookie.bookie import Bookie

log = get_logger(__name__)

_PLUGIN: Final = b"AuthDisabledPlugin"
_AUTH_ANSWER: Final = v2.auth_response(b"\x0a" + bytes([len(_PLUGIN)]) + _PLUGIN + b"\x12\x00")
"""AuthMessage {1: plugin name, 2: empty payload}: what a bookie without authentication says to anybody."""


class BookieSession:
    """Made by `Bookie.session`. `write` takes buffers that hold whole frames end to end, and must not raise."""

    def __init__(self, bookie: Bookie, write: Callable[[list[Buffer]], None]) -> None:
        self._bookie = bookie
        self._write = write
        self._out: list[Buffer] = []
        self._acks: tuple[int, int, int, int] | None = None
        """Answers to adds not yet put into `_out`: rc, ledger id, first and last entry id."""
        self._receiving = False
        self.closed = False
        """Nothing is answered any more: the peer went, or sent what is not this protocol."""
        self.is_dirty = False
        """The bookie knows that there are answers to send at the end of the journal's pass."""

    def receive(self, frames: Sequence[v2.Frame]) -> None:
        """Serve the requests in `frames`, each a buffer of whole frames or a (head, payload) pair of one big ADD. Buffers
        must not change later if they hold entries above JOIN_MAX."""
        self._receiving = True
        for frame in frames:
            if self.closed:
                break
            for request in v2.decode_requests(frame):
                if isinstance(request, v2.AddRun):
                    self._add(request)
                elif isinstance(request, v2.ReadRequest):
                    self._read(request)
                elif isinstance(request, v2.BatchReadRequest):
                    self._batch_read(request)
                elif isinstance(request, v2.AuthRequest):
                    self._out.append(_AUTH_ANSWER)
                elif isinstance(request, v2.Unsupported):
                    opcode, ledger_id, entry_id, rc = request
                    self._out.append(v2.response_head(opcode, rc, ledger_id, entry_id))
                elif isinstance(request, v2.Malformed):
                    log.info("connection closed: not the bookie protocol", reason=request.reason)
                    self.flush()
                    self.close()
        self._receiving = False
        self.flush()

    def close(self) -> None:
        """Answer nothing any more. What was received is still carried out."""
        self.closed = True
        self._out = []
        self._acks = None

    def flush(self) -> None:
        """Write the answers that have gathered."""
        self.is_dirty = False
        if self._acks is not None:
            self._put_acks()
        if self._out:
            out, self._out = self._out, []
            self._write(out)

    # --- adds

    def _add(self, add: v2.AddRun) -> None:
        bookie = self._bookie
        storage = bookie.storage
        journal = bookie.journal
        ledger_id, first, key, flags, parts, size, offsets = add
        count = len(offsets)
        known_key = storage.master_key(ledger_id) or None
        rc = check_add(known_key, key, storage.is_fenced(ledger_id), bookie.read_only, flags)
        if rc is Rc.OK and not journal.has_room(size):
            rc = Rc.TOO_MANY_REQUESTS
        if rc is Rc.OK:
            run = Run(ledger_id, first, count, parts, size, offsets)
            try:
                if journal.failed is not None:
                    raise journal.failed
                storage.add(run)
                if known_key is None:
                    storage.set_master_key(ledger_id, key)
                journal.append(run, partial(self._added, run), key)
            except WriteCacheFullError:
                rc = Rc.TOO_MANY_REQUESTS
                bookie.request_flush()
            except JournalFailedError:
                rc = Rc.IO
            else:
                stats = bookie.stats
                stats.adds += count
                stats.add_bytes += size
                return
        bookie.stats.adds_refused += count
        self._answer_adds(rc, ledger_id, first, first + count - 1)

    def _added(self, run: Run, error: BookieError | None) -> None:
        """The journal has the run on the disk, or has not."""
        self._answer_adds(Rc.OK if error is None else Rc.IO, run.ledger_id, run.first, run.last)

    def _answer_adds(self, rc: Rc, ledger_id: int, first: int, last: int) -> None:
        if self.closed:
            return
        acks = self._acks
        if acks is not None:
            if acks[3] + 1 == first and acks[1] == ledger_id and acks[0] == rc:
                self._acks = (rc, ledger_id, acks[2], last)
                return
            self._put_acks()
        self._acks = (rc, ledger_id, first, last)
        if not self.is_dirty and not self._receiving:
            self._bookie.flush_later(self)

    def _put_acks(self) -> None:
        assert self._acks is not None
        rc, ledger_id, first, last = self._acks
        self._acks = None
        self._out.append(v2.add_responses(rc, ledger_id, range(first, last + 1)))

    # --- reads

    def _read(self, request: v2.ReadRequest) -> None:
        bookie = self._bookie
        ledger_id, entry_id, flags, key = request
        bookie.stats.reads += 1
        if not flags & v2.DO_FENCING:
            self._serve_read(ledger_id, entry_id)
            return
        storage = bookie.storage
        known_key = storage.master_key(ledger_id) or None
        rc = check_fence(known_key, key)
        if rc is not Rc.OK or key is None:
            self._answer_read(rc, ledger_id, entry_id)
        elif bookie.fences.needs_wait(ledger_id, storage.is_fenced(ledger_id)):
            if known_key is None:
                storage.set_master_key(ledger_id, key)
            storage.set_fenced(ledger_id)
            bookie.fence(ledger_id, key, partial(self._fenced, ledger_id, entry_id))
        else:
            self._serve_read(ledger_id, entry_id)

    def _fenced(self, ledger_id: int, entry_id: int, error: BookieError | None) -> None:
        """The FENCE record is on the disk, or is not: only now the read is answered, even if there is no such entry."""
        if self.closed:
            return
        if error is None:
            self._serve_read(ledger_id, entry_id)
        else:
            self._answer_read(Rc.IO, ledger_id, entry_id)
        if not self._receiving:
            self._bookie.flush_later(self)

    def _serve_read(self, ledger_id: int, entry_id: int) -> None:
        bookie = self._bookie
        storage = bookie.storage
        rc = check_read(storage.master_key(ledger_id) is not None, entry_id)
        if rc is not Rc.OK:
            self._answer_read(rc, ledger_id, entry_id)
            return
        entry: memoryview | None = None
        if entry_id != LAST_ENTRY:
            entry = storage.get_cached(ledger_id, entry_id)
        if entry is not None:
            bookie.stats.reads_cached += 1
            self._answer_read(Rc.OK, ledger_id, entry_id, entry)
            return
        job = partial(_read_one, bookie.storage, ledger_id, entry_id)
        if not bookie.read_by_worker(job, partial(self._entry_read, ledger_id, entry_id)):
            self._answer_read(Rc.TOO_MANY_REQUESTS, ledger_id, entry_id)

    def _entry_read(self, ledger_id: int, entry_id: int, parts: list[Buffer] | None, rc: Rc) -> None:
        """A worker has (size entry), or `rc` says why not."""
        if self.closed:
            return
        if parts is None:
            self._answer_read(rc, ledger_id, entry_id)
        else:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._answer_read(rc, ledger_id, entry_id, memoryview(body)[4:])
        self.flush()

    def _answer_read(self, rc: Rc, ledger_id: int, entry_id: int, entry: memoryview | None = None) -> None:
        if entry is None:
            self._out.append(v2.response_head(Opcode.READ, rc, ledger_id, entry_id))
            return
        self._out += (v2.response_head(Opcode.READ, rc, ledger_id, entry_id, len(entry)), entry)

    def _batch_read(self, request: v2.BatchReadRequest) -> None:
        bookie = self._bookie
        storage = bookie.storage
        ledger_id, first, request_id, _, _, flags = request
        bookie.stats.reads += 1
        rc = check_read(storage.master_key(ledger_id) is not None, first)
        if flags & v2.DO_FENCING or first < 0:
            rc = Rc.BAD_REQUEST
        if rc is not Rc.OK:
            self._out.append(v2.batch_response_head(rc, ledger_id, first, request_id))
            return
        count_max, size_max = batch_limits(request, bookie.config.batch_read_size_max)
        parts = storage.read_cached(ledger_id, first, count_max, size_max)
        if parts is not None:
            bookie.stats.reads_cached += 1
            self._answer_batch(Rc.OK, ledger_id, first, request_id, parts)
            return
        job = partial(storage.read_run, ledger_id, first, count_max, size_max)
        if not bookie.read_by_worker(job, partial(self._batch_done, ledger_id, first, request_id)):
            self._out.append(v2.batch_response_head(Rc.TOO_MANY_REQUESTS, ledger_id, first, request_id))

    def _batch_done(self, ledger_id: int, first: int, request_id: int, parts: list[Buffer] | None, rc: Rc) -> None:
        if not self.closed:
            self._answer_batch(rc, ledger_id, first, request_id, parts or [])
            self.flush()

    def _answer_batch(self, rc: Rc, ledger_id: int, first: int, request_id: int, parts: list[Buffer]) -> None:
        self._out.append(v2.batch_response_head(rc, ledger_id, first, request_id, sum(map(len, parts))))
        self._out += parts


def _read_one(storage: DbLedgerStorage, ledger_id: int, entry_id: int) -> list[Buffer]:
    """(size entry) of one entry, or of the last one. Blocking."""
    wanted = storage.last_entry_id(ledger_id) if entry_id == LAST_ENTRY else entry_id
    return storage.read_run(ledger_id, wanted, 1, FRAME_MAX)


def rc_of(error: Exception) -> Rc:
    """How a failed read is told to the client. Damage is never "no such entry": recovery would cut the ledger there."""
    match error:
        case NoLedgerError():
            return Rc.NO_LEDGER
        case NoEntryError():
            return Rc.NO_ENTRY
        case _:
            return Rc.IO
