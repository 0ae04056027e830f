"""Answers of a fake bookie to the requests of version 3 that readers and writers use; writers use those of deferred
syncs and explicit LACs only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Digest, read_header
from quire.wire.bookkeeper.v2 import Rc

if TYPE_CHECKING:
    from tests.unit.ledger.fake_bookie import FakeBookie, FakeSession


@dataclass(eq=False)
class Poll:
    """A waiting long poll."""

    session: FakeSession
    request: v3.ReadRequest


def known_lac(bookie: FakeBookie, ledger_id: int) -> int:
    """LAC known to the bookie from entries and explicit LACs, -1 for none."""
    lacs = [read_header(entry).lac for entry in bookie.entries.get(ledger_id, {}).values()]
    package = bookie.lacs.get(ledger_id)
    if package is not None:
        lacs.append(int.from_bytes(package[8:16], "big", signed=True))
    return max(lacs, default=-1)


def explicit_lac(bookie: FakeBookie, ledger_id: int, lac: int, digest: Digest) -> None:
    """Set the explicit LAC, as by a writer's request."""
    bookie.lacs[ledger_id] = digest.seal_lac(ledger_id, lac)
    moved(bookie, ledger_id)


def serve(session: FakeSession, request: v3.Request) -> None:
    bookie = session.bookie
    bookie.requests.append(request)
    if bookie.hung:
        return
    refused = bookie.refuse(request)
    if isinstance(request, v3.ReadLacRequest):
        entries = bookie.entries.get(request.ledger_id)
        last = entries[max(entries)] if entries else None
        package = bookie.lacs.get(request.ledger_id)
        # As in the original: without an entry the code is IO, although the answer has the explicit LAC.
        found = Rc.OK if last is not None else Rc.NO_ENTRY if package is None else Rc.IO
        rc = found if refused is None else refused
        session.write([v3.read_lac_response(request.txn_id, rc, request.ledger_id, package, last)])
    elif isinstance(request, v3.ReadRequest) and request.previous_lac is not None:
        if refused is not None or not bookie.entries.get(request.ledger_id):
            rc = refused or Rc.NO_LEDGER
            session.write(v3.read_response(request.txn_id, rc, request.ledger_id, request.entry_id))
        elif known_lac(bookie, request.ledger_id) > request.previous_lac or request.ledger_id in bookie.fenced:
            answer(session, request)
        else:
            poll = Poll(session, request)
            bookie.polls.append(poll)
            trio.lowlevel.spawn_system_task(time_out, bookie, poll)
    elif isinstance(request, v3.ReadRequest):
        rc, entry = (refused, b"") if refused is not None else bookie.read(v2.ReadRequest(*request[1:5]))
        found_lac = known_lac(bookie, request.ledger_id) if rc is Rc.OK else None
        session.write(
            v3.read_response(request.txn_id, rc, request.ledger_id, request.entry_id, entry or None, max_lac=found_lac)
        )
    elif isinstance(request, v3.AddRequest):
        run = request.run
        rc = bookie.add(run) if refused is None else refused
        ids = range(run.first, run.first + run.count)
        if request.write_flags & v3.DEFERRED_SYNC:
            bookie.deferred.setdefault(run.ledger_id, set()).update(ids)
        session.answer_add(v3.add_responses(rc, run.ledger_id, ids, request.txns))
    elif isinstance(request, v3.ForceRequest):
        bookie.forces += 1
        if bookie.force_rc == Rc.OK:
            bookie.deferred.pop(request.ledger_id, None)
        session.write([v3.force_response(request.txn_id, bookie.force_rc, request.ledger_id)])
    elif isinstance(request, v3.WriteLacRequest):
        bookie.lacs[request.ledger_id] = bytes(request.body)
        moved(bookie, request.ledger_id)
        session.write([v3.write_lac_response(request.txn_id, Rc.OK, request.ledger_id)])
    else:
        raise AssertionError(f"the client sent {request}")


async def time_out(bookie: FakeBookie, poll: Poll) -> None:
    assert poll.request.timeout_ms is not None
    await trio.sleep(poll.request.timeout_ms / 1000)
    if poll in bookie.polls:
        bookie.polls.remove(poll)
        answer(poll.session, poll.request)


def answer(session: FakeSession, request: v3.ReadRequest) -> None:
    """Answer a long poll with the existing data."""
    bookie = session.bookie
    assert request.previous_lac is not None
    lac = known_lac(bookie, request.ledger_id)
    entry: Any = None
    if request.piggyback and lac > request.previous_lac:
        entry = bookie.entries[request.ledger_id].get(request.previous_lac + 1)
    session.write(v3.read_response(request.txn_id, Rc.OK, request.ledger_id, request.entry_id, entry, max_lac=lac))


def moved(bookie: FakeBookie, ledger_id: int) -> None:
    """Answer the long polls whose LAC has arrived."""
    if bookie.hung:
        return
    for poll in list(bookie.polls):
        request = poll.request
        assert request.previous_lac is not None
        if request.ledger_id == ledger_id and (
            known_lac(bookie, ledger_id) > request.previous_lac or ledger_id in bookie.fenced
        ):
            bookie.polls.remove(poll)
            answer(poll.session, request)
