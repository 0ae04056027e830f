"""Requests of protocol version 3 besides version 2's adds and reads: long polls, explicit LACs, forces, bookie info,
lists of entries. Each connection that uses version 3 has one `Version3` besides its `BookieSession`.

    READ      as in version 2, and its answer has the LAC that the bookie knows; answers to fencing reads do not
    long poll READ with a previous LAC: long_polls.py
    WRITE_LAC master key -> index -> record in the journal -> (group synced) -> answer
    READ_LAC  explicit LAC and last entry, if they exist. Without a last entry the code is IO even with an explicit LAC,
              and NO_ENTRY without both. The original does the same, and its clients expect it
    FORCE     answered after a sync that covers everything answered before; also for an unknown ledger
    LIST      from both caches and the location index

Source: BookKeeper's ReadEntryProcessorV3, WriteLacProcessorV3, ReadLacProcessorV3,
ForceLedgerProcessorV3, GetBookieInfoProcessorV3, GetListOfEntriesOfLedgerProcessorV3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from bookie.directories.storage import LedgerStorage
from bookie.errors import BookieError, JournalFailedError
from bookie.requests import LAST_ENTRY, check_read, rc_of
from bookie.sessions.entry_reads import last_confirmed, read_entry
from bookie.sessions.long_polls import LongPolls
from bookie.sessions.ports import Version3Session
from quire.service.log import get_logger
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.auth import NO_AUTHENTICATION
from quire.wire.bookkeeper.availability import Availability
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import DO_FENCING, FRAME_MAX, Rc

log = get_logger(__name__)

_LIST_MAX: Final = FRAME_MAX - 1024
"""Bytes of a list of entries that a frame has room for."""


class Version3:
    """Server of one session's requests of version 3."""

    def __init__(self, session: Version3Session) -> None:
        self._session = session
        self._bookie = session.bookie
        self._polls = LongPolls(session, self)

    def serve(self, request: v3.Request) -> None:
        """Serve one request, tested in the order of frequency."""
        match request:
            case v3.AddRequest():
                self._add(request)
            case v3.ReadRequest():
                self._bookie.stats.reads += 1
                self._read(request)
            case v3.WriteLacRequest():
                self._write_lac(request)
            case v3.ReadLacRequest():
                self._read_lac(request)
            case v3.ForceRequest():
                self._force(request)
            case v3.ListOfEntriesRequest():
                self._list_entries(request)
            case v3.BookieInfoRequest():
                self._bookie_info(request)
            case v3.AuthRequest():
                self._session.out.append(v3.auth_response(request.txn_id, Rc.OK, NO_AUTHENTICATION, b""))
            case v3.StartTlsRequest():
                self._session.out.append(v3.start_tls_response(request.txn_id, Rc.BAD_REQUEST))
            case v3.Unsupported():
                self._session.out.append(v3.refusal(*request))
            case v3.NotVersion3():
                self._session.not_version_3(request.position)

    def close(self) -> None:
        """End all waits: the peer has disconnected."""
        self._polls.close()

    # --- adds

    def _add(self, add: v3.AddRequest) -> None:
        self._bookie.stats.frames += add.run.count - 1
        deferred = bool(add.write_flags & v3.DEFERRED_SYNC)
        self._session.store(add.run, partial(self._added, add.txns), deferred=deferred)

    def _added(self, txns: Sequence[bytes], run: Run, rc: Rc) -> None:
        self._answer(v3.add_responses(rc, run.ledger_id, range(run.first, run.first + run.count), txns))

    # --- reads; long polls end in them

    def _read(self, request: v3.ReadRequest) -> None:
        if request.flags & DO_FENCING:
            self._bookie.fence(request.ledger_id, request.master_key, partial(self._fenced, request))
        elif request.previous_lac is not None:
            self._polls.begin(request)
        else:
            self.serve_read(request)

    def _fenced(self, request: v3.ReadRequest, rc: Rc) -> None:
        if self._session.closed:
            return
        if rc is Rc.OK:
            self.serve_read(request)
        else:
            self.answer_read(request, None, rc)
        self._session.flush_later()

    def serve_read(self, request: v3.ReadRequest) -> None:
        """Serve a read whose fence or wait, if any, is over."""
        storage = self._bookie.storage
        ledger_id, entry_id = request.ledger_id, request.entry_id
        rc = check_read(storage.master_key(ledger_id) is not None, entry_id)
        if rc is not Rc.OK:
            self.answer_read(request, None, rc)
            return
        knows_lac = request.flags & DO_FENCING or self._bookie.lacs.known(ledger_id) is not None
        entry = storage.reader.get_cached(ledger_id, entry_id) if entry_id != LAST_ENTRY and knows_lac else None
        if entry is not None:
            self._bookie.stats.reads_cached += 1
            self.answer_read(request, entry, Rc.OK)
        elif knows_lac:
            job = partial(read_entry, storage, ledger_id, entry_id)
            rc = self._session.by_worker(job, partial(self.answer_read, request), ledger_id, request.flags)
        else:
            self._bookie.lacs.follow(ledger_id)
            both = partial(_read_entry_and_lac, storage, ledger_id, entry_id)
            rc = self._session.by_worker(both, partial(self._entry_and_lac_read, request), ledger_id, request.flags)
        if rc is not Rc.OK:
            self.answer_read(request, None, rc)

    def _entry_and_lac_read(self, request: v3.ReadRequest, found: tuple[Buffer, int] | None, rc: Rc) -> None:
        if found is None:
            self.answer_read(request, None, rc)
        else:
            self._bookie.lacs.learned(request.ledger_id, found[1])
            self.answer_read(request, found[0], rc)

    def answer_read(self, request: v3.ReadRequest, entry: Buffer | None, rc: Rc) -> None:
        max_lac: int | None = None
        if rc is Rc.OK and not request.flags & DO_FENCING:
            max_lac = self._bookie.lacs.known(request.ledger_id)
        self.put_read(request, request.entry_id, entry, rc, max_lac)

    def put_read(
        self,
        request: v3.ReadRequest,
        entry_id: int,
        entry: Buffer | None,
        rc: Rc,
        max_lac: int | None = None,
        updated_ms: int | None = None,
    ) -> None:
        parts = v3.read_response(
            request.txn_id, rc, request.ledger_id, entry_id, entry, max_lac=max_lac, lac_update_ms=updated_ms
        )
        self._session.put(parts, 0 if entry is None else len(entry))

    # --- last confirmed

    def _write_lac(self, request: v3.WriteLacRequest) -> None:
        txn_id, ledger_id, _, key, body = request
        rc = self._bookie.write_lac(ledger_id, key, body, partial(self._lac_written, txn_id, ledger_id))
        if rc is not Rc.OK:
            self._session.out.append(v3.write_lac_response(txn_id, rc, ledger_id))

    def _lac_written(self, txn_id: int, ledger_id: int, error: BookieError | None) -> None:
        self._answer(v3.write_lac_response(txn_id, Rc.OK if error is None else Rc.IO, ledger_id))

    def _read_lac(self, request: v3.ReadLacRequest) -> None:
        self._bookie.stats.lac_reads += 1
        storage = self._bookie.storage
        ledger_id = request.ledger_id
        if storage.master_key(ledger_id) is None:
            self._session.out.append(v3.read_lac_response(request.txn_id, Rc.NO_ENTRY, ledger_id))
            return
        job = partial(read_entry, storage, ledger_id, LAST_ENTRY)
        rc = self._session.by_worker(job, partial(self._last_entry_read, request), ledger_id, v2.HIGH_PRIORITY)
        if rc is not Rc.OK:
            self._session.out.append(v3.read_lac_response(request.txn_id, rc, ledger_id))

    def _last_entry_read(self, request: v3.ReadLacRequest, entry: Buffer | None, rc: Rc) -> None:
        ledger_id = request.ledger_id
        package = self._bookie.storage.explicit_lac(ledger_id)
        if entry is None and rc is Rc.NO_ENTRY and package is not None:
            rc = Rc.IO
        elif entry is None and rc is Rc.NO_LEDGER:
            rc = Rc.NO_ENTRY
        self._session.out.append(v3.read_lac_response(request.txn_id, rc, ledger_id, package, entry))

    # --- the rest

    def _force(self, request: v3.ForceRequest) -> None:
        txn_id, ledger_id = request

        def forced(error: BookieError | None) -> None:
            self._answer(v3.force_response(txn_id, Rc.OK if error is None else Rc.IO, ledger_id))

        journal = self._bookie.journal.of(ledger_id)
        rc = Rc.OK
        try:
            if journal.has_room(0):
                journal.force(ledger_id, forced)
                self._bookie.stats.forces += 1
            else:
                rc = Rc.TOO_MANY_REQUESTS
        except JournalFailedError as error:
            rc = rc_of(error)
        if rc is not Rc.OK:
            self._session.out.append(v3.force_response(txn_id, rc, ledger_id))

    def _list_entries(self, request: v3.ListOfEntriesRequest) -> None:
        txn_id, ledger_id = request
        self._bookie.stats.list_requests += 1

        def listed(availability: bytes | None, rc: Rc) -> None:
            if availability is not None and len(availability) > _LIST_MAX:
                log.error("the list of entries is too long for a frame", ledger=ledger_id, bytes=len(availability))
                availability, rc = None, Rc.IO
            self._session.out.append(v3.list_of_entries_response(txn_id, rc, ledger_id, availability))

        job = partial(_list_of_entries, self._bookie.storage, ledger_id)
        rc = self._session.by_worker(job, listed, ledger_id, 0)
        if rc is not Rc.OK:
            listed(None, rc)

    def _bookie_info(self, request: v3.BookieInfoRequest) -> None:
        txn_id, requested = request
        self._bookie.stats.info_requests += 1

        def answer(space: tuple[int, int] | None, rc: Rc) -> None:
            total, free = space or (None, None)
            self._session.out.append(
                v3.bookie_info_response(
                    txn_id,
                    rc,
                    total if requested & v3.TOTAL_DISK_CAPACITY else None,
                    free if requested & v3.FREE_DISK_SPACE else None,
                )
            )

        rc = self._session.by_worker(self._bookie.disk_space, answer, 0, 0)
        if rc is not Rc.OK:
            answer(None, rc)

    def _answer(self, frame: bytes) -> None:
        if not self._session.closed:
            self._session.out.append(frame)
            self._session.flush_later()


def _read_entry_and_lac(storage: LedgerStorage, ledger_id: int, entry_id: int) -> tuple[Buffer, int]:
    return read_entry(storage, ledger_id, entry_id), last_confirmed(storage, ledger_id)


def _list_of_entries(storage: LedgerStorage, ledger_id: int) -> bytes:
    return Availability.of(storage.reader.entry_ids(ledger_id)).encode()
