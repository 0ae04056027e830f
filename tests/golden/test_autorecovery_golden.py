"""Values that Apache BookKeeper's auto recovery wrote into ZooKeeper are decoded with the same meaning and written
alike.

How the data was made: tests/golden/bookkeeper/zk/README.md.
"""

from __future__ import annotations

from random import Random

import pytest
import trio

from autorecovery.auditing.auditor import Auditor
from autorecovery.auditing.election import read_auditor
from autorecovery.config import AutoRecoveryConfig
from autorecovery.marks.underreplication import CheckTime, UnderreplicatedLedgers
from quire.metadata import marks as form
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Create, Kind
from tests.golden.metadata_tree import tree_of
from tests.unit.autorecovery.cluster import Cluster

ROOT = "/db/ledgers"
BASE = f"{ROOT}/underreplication"
LOST = "127.0.0.1:3283"
MARKED = [0, 1, 2, 3, 5, 6, 7, 8, 9, 5_000_000_000]


async def store_with(name: str, *, without: str = " ") -> MemoryStore:
    store = MemoryStore(MemoryTree())
    for path, (value, ephemeral) in tree_of(name).items():
        if not path.startswith(without):
            kind = Kind.EPHEMERAL if ephemeral else Kind.PERSISTENT
            await store.multi([Create(path=path, value=value, kind=kind, make_parents=True)])
    return store


def marks_of(store: MemoryStore, wall_ms: int = 0, owner: str = "localhost") -> UnderreplicatedLedgers:
    return UnderreplicatedLedgers(store, root=ROOT, rng=Random(1), wall_ms=lambda: wall_ms, owner=owner)


@pytest.mark.real_clock
@pytest.mark.parametrize("name", ["underreplicated", "disabled"])
async def test_the_originals_marks_and_locks_are_read(name: str) -> None:
    marks = marks_of(await store_with(name))
    await marks.prepare()
    found = [mark async for mark in marks.list()]
    assert [mark.ledger_id for mark in found] == MARKED
    assert {mark.replicas for mark in found} == {(LOST,)}
    assert all(mark.ctime_ms is not None and 1_795_258_634_000 < mark.ctime_ms < 1_795_258_636_000 for mark in found)
    assert await marks.is_enabled() is (name == "underreplicated")
    locked = [each for each in MARKED if await marks.locked_by(each) is not None]
    assert locked == ([1, 3, 5, 7, 8, 5_000_000_000] if name == "underreplicated" else [0, 1, 5, 9, 5_000_000_000])
    assert {await marks.locked_by(each) for each in locked} == {"localhost"}
    ours = [await marks.lock_next() for _ in MARKED]
    assert sorted(each.ledger_id for each in ours if each is not None) == sorted(set(MARKED) - set(locked))


@pytest.mark.real_clock
@pytest.mark.parametrize("name", ["underreplicated", "disabled", "autorecovery"])
async def test_the_originals_election_delay_and_times_of_checks_are_read(name: str) -> None:
    store = await store_with(name)
    marks = marks_of(store)
    assert await read_auditor(store, ROOT) == "127.0.0.1:3281"
    assert await marks.recovery_delay(7) == 0
    assert await marks.check_time(CheckTime.ALL_LEDGERS) == 1_795_258_607_957
    assert await marks.check_time(CheckTime.PLACEMENT) is None


@pytest.mark.real_clock
async def test_what_metaformat_leaves_is_read() -> None:
    store = await store_with("formatted")
    marks = marks_of(store)
    await marks.prepare()
    assert [mark async for mark in marks.list()] == []
    assert await marks.lock_next() is None
    assert await marks.recovery_delay() == 7
    assert await read_auditor(store, ROOT) is None
    assert all([await marks.check_time(check) is not None for check in CheckTime])


@pytest.mark.real_clock
async def test_our_marks_and_locks_are_the_originals_byte_for_byte() -> None:
    golden = {path: node for path, node in tree_of("underreplicated").items() if path.startswith(BASE)}
    store = MemoryStore(MemoryTree())
    await marks_of(store).prepare()
    for ledger_id in MARKED:
        path = "/".join([BASE, "ledgers", *form.folder_names(ledger_id), form.node_name(ledger_id)])
        ctime_ms = form.decode_mark(ledger_id, golden[path][0]).ctime_ms
        assert ctime_ms is not None
        await marks_of(store, ctime_ms).mark(ledger_id, [LOST])
    while await marks_of(store).lock_next() is not None:
        continue
    await marks_of(store).begin_recovery_delay(0)
    await marks_of(store).set_check_time(CheckTime.ALL_LEDGERS, 1_795_258_607_957)
    for path, (value, ephemeral) in golden.items():
        if "auditorelection" in path:
            continue
        node = await store.get(path)
        assert node is not None, path
        assert (node.value, node.ephemeral) == (value, ephemeral), path


async def test_our_auditor_marks_the_ledgers_that_the_originals_auditor_marked() -> None:
    store = await store_with("underreplicated", without=BASE)
    cluster = Cluster()
    ledgers = cluster.ledgers_of(store)
    ledgers.manager.root = ROOT
    marks = marks_of(store)
    auditor = Auditor(store, ledgers, marks, AutoRecoveryConfig(), wall_ms=cluster.wall_ms, rng=Random(1), root=ROOT)
    with trio.move_on_after(1):
        await auditor.run()
    assert [(mark.ledger_id, mark.replicas) async for mark in marks.list()] == [(each, (LOST,)) for each in MARKED]
