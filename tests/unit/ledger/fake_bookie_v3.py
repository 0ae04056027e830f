"""Fake bookies that also answer the part of version 3 that writers use: adds with write flags, force, explicit LACs."""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.bookies.link_local import LocalLink
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.ledger import fake_reads_v3
from tests.unit.ledger.fake_bookie import FakeBookie, FakeCluster, FakeSession


class BothBookie(FakeBookie):
    """`forced` has the synced entries by ledger; `crash` loses the other deferred ones."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(bookie_id)
        self.deferred: dict[int, set[int]] = {}
        self.forces = 0
        self.force_rc = Rc.OK

    def connect(self) -> LocalLink:
        link = super().connect()
        link.close()
        self.links.pop()
        link = LocalLink(lambda write: BothSession(self, write))
        self.links.append(link)
        return link

    def crash(self) -> None:
        """Lose unsynced entries and the links; new links can be opened at once."""
        for ledger_id, entry_ids in self.deferred.items():
            for entry_id in entry_ids:
                self.entries[ledger_id].pop(entry_id, None)
        self.deferred.clear()
        self.lose_links()


class BothSession(FakeSession):
    bookie: BothBookie

    def receive(self, frames: Sequence[v2.Frame]) -> None:
        for frame in frames:
            if not v3.is_version_3(frame):
                super().receive([frame])
                continue
            for request in v3.decode_requests(frame):
                self._serve_v3(request)

    def _serve_v3(self, request: v3.Request) -> None:
        bookie = self.bookie
        if bookie.hung:
            return
        if isinstance(request, v3.AddRequest):
            run = request.run
            rc = bookie.add(run)
            ids = range(run.first, run.first + run.count)
            if request.write_flags & v3.DEFERRED_SYNC:
                bookie.deferred.setdefault(run.ledger_id, set()).update(ids)
            answer = v3.add_responses(rc, run.ledger_id, ids, request.txns)
            if bookie.hold:
                bookie.held.append((self, answer))
            else:
                self.write([answer])
        elif isinstance(request, v3.ForceRequest):
            bookie.forces += 1
            if bookie.force_rc == Rc.OK:
                bookie.deferred.pop(request.ledger_id, None)
            self.write([v3.force_response(request.txn_id, bookie.force_rc, request.ledger_id)])
        elif isinstance(request, v3.WriteLacRequest):
            bookie.lacs[request.ledger_id] = bytes(request.body)
            fake_reads_v3.moved(bookie, request.ledger_id)
            self.write([v3.write_lac_response(request.txn_id, Rc.OK, request.ledger_id)])
        else:
            fake_reads_v3.serve(self, request)


class BothCluster(FakeCluster):
    """Cluster of BothBookies."""

    def __init__(self, size: int, *, seed: int = 0) -> None:
        super().__init__(size, seed=seed)
        self.both = {bookie_id: BothBookie(bookie_id) for bookie_id in self.bookies}
        self.bookies = {**self.both}

    def both_of(self, ensemble: Sequence[str]) -> list[BothBookie]:
        return [self.both[each] for each in ensemble]
