"""A broker on the data of a Pulsar."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cursors.config import CursorConfig
from cursors.position_info import Stored, decode_node
from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.ledger_list import decode
from managed_ledger.stored_list import log_path
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key
from quire.wire.pulsar import MLDataFormats_pb2 as ml
from tests.golden.pulsar_files import (
    ROOT,
    cursor_nodes,
    entries,
    ledgers,
    logs,
    nodes,
    stored_running,
)
from tests.unit.ledger.fake_bookie import FakeBookie, FakeCluster, RacingLedgers
from tests.unit.managed_ledger.fake_ledgers import fake_world

DEFAULT = "public/default/persistent"


ORDERS = f"{DEFAULT}/orders"


NEWER = bytes.fromhex("a206027e7e")
"""A field of a newer schema."""


KEEP = ManagedLedgerConfig(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    age_min_minutes=0,
    entries_max=10,
    retention_minutes=-1,
    retention_mb=-1,
)


class Left(FakeCluster):
    """State left by the original at one moment."""

    def __init__(self, moment: str) -> None:
        super().__init__(0)
        self.moment = moment
        self.bookies = {bookie_id: FakeBookie(bookie_id) for bookie_id in ("127.0.0.1:3286", "127.0.0.1:3287")}
        self.ledgers = RacingLedgers(self.store, ids=SequenceLedgerIds(self.store), rng=self.rng)
        for ledger_id, payloads in entries(moment).items():
            digest = Digest(DigestType[ledgers(moment)[ledger_id]["digest"]], b"")
            length = 0
            for entry_id, payload in enumerate(payloads):
                length += len(payload)
                sealed = digest.seal(ledger_id, entry_id, entry_id - 1, length, payload) + payload
                for bookie in self.bookies.values():
                    bookie.entries.setdefault(ledger_id, {})[entry_id] = sealed
                    bookie.keys[ledger_id] = master_key(b"")

    async def load(self) -> Left:
        for path, value in sorted(nodes(self.moment).items()):
            if path.startswith(f"{ROOT}/") and "/loadbalance/" not in path and "/namespace/" not in path:
                await self.store.create(path.removeprefix(ROOT), value)
        return self

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[ManagedLedgerFactory]:
        cursors = CursorConfig(ensemble_size=2, write_quorum=2, ack_quorum=2)
        async with self.client() as client, open_factory(fake_world(), self.store, client, KEEP, cursors) as factory:
            yield factory

    def stored(self, log: str, cursor: str) -> Stored:
        """Return the state of a cursor as the original left it."""
        if self.moment == "running":
            return stored_running(log, cursor)
        return decode_node(cursor_nodes("stopped")[log, cursor])[1]

    async def list_of(self, log: str) -> ml.ManagedLedgerInfo:
        node = await self.store.get(log_path(log))
        assert node is not None
        return ml.ManagedLedgerInfo.FromString(node.value)


@asynccontextmanager
async def taken_over(moment: str) -> AsyncIterator[Left]:
    yield await Left(moment).load()


def entries_of(moment: str, log: str) -> list[bytes]:
    return [entry for info in decode(logs(moment)[log]).ledgers for entry in entries(moment).get(info.ledger_id, [])]
