"""Copies that never reached their bookie are found when it returns, and in ledgers for which a writer noted it:
autorecovery/auditing/missed_copies.py, returned.py, listed_copies.py, quire/metadata/unacked.py."""

from __future__ import annotations

from random import Random

import pytest
import trio

from autorecovery.auditing.auditor import Auditor
from autorecovery.auditing.missed_copies import NOTE_INTERVAL_S
from autorecovery.auditing.returned import SETTLED_S
from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import ListOfEntriesError
from autorecovery.fragments import BadFragment, fragments_of
from autorecovery.marks.underreplication import CheckTime
from quire.ledger.reading.copies import CopyFault
from quire.metadata import unacked
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.memory import MemoryStore
from quire.wire.bookkeeper.availability import Availability
from tests.unit.autorecovery.cluster import Cluster, closed

SOON_S = 5.0
DELAY_S = 30


class Copies:
    """Entries of the bookies that do not have all of them, by bookie and ledger."""

    def __init__(self) -> None:
        self.has: dict[tuple[str, int], range] = {}
        self.silent: set[str] = set()
        self.asked: list[tuple[str, int]] = []
        self.originals: set[str] = set()
        """Bookies that answer reads and do not list entries."""

    async def list_entries(self, bookie_id: str, ledger_id: int) -> Availability:
        self.asked.append((bookie_id, ledger_id))
        if bookie_id in self.silent | self.originals:
            raise ListOfEntriesError(f"{bookie_id} is silent")
        return Availability.of(self.has.get((bookie_id, ledger_id), range(1000)))

    async def check(self, ledger_id: int, metadata: LedgerMetadata, *, percentage: int = 0) -> list[BadFragment]:
        """Check only the last entry of each closed fragment."""
        found: list[BadFragment] = []
        for fragment in fragments_of(ledger_id, metadata):
            faults = {
                index: CopyFault.UNREACHABLE if bookie_id in self.silent else CopyFault.MISSING
                for index, bookie_id in enumerate(fragment.bookies)
                if bookie_id in self.silent or fragment.last not in self.has.get((bookie_id, ledger_id), range(1000))
            }
            if faults and fragment.closed:
                found.append(BadFragment(fragment=fragment, faults=dict(faults)))
        return found


class Stage:
    def __init__(self, cluster: Cluster, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self.nursery = nursery
        self.copies = Copies()

    async def audit(self) -> trio.CancelScope:
        """Start an auditor; cancel the returned scope to kill it."""
        scope = trio.CancelScope()
        store = MemoryStore(self.cluster.tree)
        config = AutoRecoveryConfig(ledger_check_interval_s=0, lost_bookie_recovery_delay_s=DELAY_S)
        auditor = Auditor(
            store,
            self.cluster.ledgers_of(store),
            self.cluster.marks_of(store),
            config,
            wall_ms=self.cluster.wall_ms,
            rng=Random(1),
            checker=self.copies,
            list_entries=self.copies.list_entries,
        )

        async def run_auditor() -> None:
            with scope:
                await auditor.run()

        self.nursery.start_soon(run_auditor)
        await trio.sleep(SOON_S)
        return scope

    async def lacking(self, bookie_id: str, has: range = range(5)) -> int:
        """Make a closed ledger of which a bookie has only these entries; return its id."""
        ledger_id = await self.cluster.ledger(closed("b1", "b2", "b3"))
        self.copies.has[bookie_id, ledger_id] = has
        return ledger_id

    async def restart(self, bookie_id: str) -> None:
        await self.cluster.go(bookie_id)
        await self.cluster.come(bookie_id)

    async def marked_soon(self) -> dict[int, tuple[str, ...]]:
        await trio.sleep(SOON_S)
        return await self.cluster.marked()

    async def notes(self) -> list[str]:
        return await self.cluster.store.children(unacked.folder("/ledgers"))


@pytest.fixture
async def stage(cluster: Cluster, nursery: trio.Nursery) -> Stage:
    """Bookies b1 to b4 and two ledgers, closed ten minutes ago; everything was checked since."""
    await cluster.begin("b1", "b2", "b3", "b4")
    for members in (("b1", "b2", "b3"), ("b2", "b3", "b4")):
        await cluster.ledger(closed(*members))
    stage = Stage(cluster, nursery)
    scope = await stage.audit()
    await trio.sleep(2 * NOTE_INTERVAL_S)
    scope.cancel()
    stage.copies.asked.clear()
    return stage


def opened(*fragments: tuple[int, tuple[str, ...]]) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=tuple(Fragment(first, members) for first, members in fragments),
    )


async def test_a_bookie_that_is_back_within_the_delay_and_lacks_copies_has_its_ledgers_marked(stage: Stage) -> None:
    await stage.audit()
    lacking = await stage.lacking("b1", range(8))
    whole = await stage.cluster.ledger(closed("b1", "b2", "b4"))
    await stage.cluster.go("b1")
    await trio.sleep(DELAY_S / 3)
    await stage.cluster.come("b1")
    assert await stage.marked_soon() == {lacking: ("b1",)}
    assert set(stage.copies.asked) == {("b1", lacking), ("b1", whole)}, "only what was stored since is compared"


async def test_a_bookie_that_came_back_before_anybody_looked_is_checked_by_its_session(stage: Stage) -> None:
    await stage.audit()
    ledger_id = await stage.lacking("b1")
    await stage.restart("b1")
    assert await stage.marked_soon() == {ledger_id: ("b1",)}


async def test_the_next_auditor_checks_what_returned_while_there_was_none(stage: Stage) -> None:
    ledger_id = await stage.lacking("b1")
    await stage.restart("b1")
    await trio.sleep(1000)
    await stage.audit()
    assert await stage.cluster.marked() == {ledger_id: ("b1",)}


async def test_an_auditor_that_dies_in_the_check_leaves_it_to_the_next(stage: Stage) -> None:
    ledger_id = await stage.lacking("b1")
    stage.copies.silent.add("b1")
    await stage.restart("b1")
    scope = await stage.audit()
    await trio.sleep(3 * NOTE_INTERVAL_S)
    assert await stage.cluster.marked() == {}
    scope.cancel()
    stage.copies.silent.clear()
    await stage.audit()
    assert await stage.cluster.marked() == {ledger_id: ("b1",)}


async def test_bookies_that_stay_are_not_asked(stage: Stage) -> None:
    await stage.cluster.ledger(closed("b1", "b2", "b3"))
    await stage.audit()
    await trio.sleep(3 * NOTE_INTERVAL_S)
    await stage.cluster.come("b2", read_only=True)
    await trio.sleep(SOON_S)
    assert stage.copies.asked == []


async def test_an_open_ledger_is_compared_when_its_writer_has_replaced_the_bookie(stage: Stage) -> None:
    await stage.audit()
    ledger_id = await stage.cluster.ledger(opened((0, ("b1", "b2", "b3"))))
    stage.copies.has["b1", ledger_id] = range(5)
    await stage.restart("b1")
    await trio.sleep(SETTLED_S / 2)
    assert await stage.cluster.marked() == {}
    changed = opened((0, ("b1", "b2", "b3")), (7, ("b4", "b2", "b3")))
    await stage.cluster.ledgers.manager.write(ledger_id, changed, 0)
    await trio.sleep(SETTLED_S)
    assert await stage.cluster.marked() == {ledger_id: ("b1",)}


async def test_a_bookie_that_reads_and_does_not_list_is_checked_by_reads(stage: Stage) -> None:
    await stage.audit()
    ledger_id = await stage.lacking("b1")
    stage.copies.originals.add("b1")
    await stage.restart("b1")
    assert await stage.marked_soon() == {ledger_id: ("b1",)}


async def test_without_a_note_everything_since_the_last_check_of_all_ledgers_is_compared(cluster, nursery):
    await cluster.begin("b1", "b2", "b3")
    old = await cluster.ledger(closed("b1", "b2", "b3"))
    await trio.sleep(1000)
    await cluster.marks.prepare()
    await cluster.marks.set_check_time(CheckTime.ALL_LEDGERS, 1_000_000)
    new = await cluster.ledger(closed("b1", "b2", "b3"))
    stage = Stage(cluster, nursery)
    await stage.audit()
    assert {ledger_id for _, ledger_id in stage.copies.asked} == {new}
    assert old != new


async def test_while_auto_recovery_is_disabled_nothing_is_compared(stage: Stage) -> None:
    ledger_id = await stage.lacking("b1")
    await stage.cluster.marks.disable()
    await stage.restart("b1")
    await stage.audit()
    assert stage.copies.asked == []
    await stage.cluster.marks.enable()
    assert await stage.marked_soon() == {ledger_id: ("b1",)}


async def test_a_ledger_that_a_writer_noted_is_compared_with_all_members_and_the_note_goes(stage: Stage) -> None:
    await stage.audit()
    manager: LedgerManager = stage.cluster.ledgers.manager
    ledger_id = await stage.cluster.ledger(opened((0, ("b1", "b2", "b3"))))
    stage.copies.has["b3", ledger_id] = range(5)
    await manager.note_unacked(ledger_id, 7)
    await trio.sleep(SOON_S)
    assert await stage.notes() == [f"L{ledger_id:010d}"], "the change of the ensemble is not stored yet"
    await manager.write(ledger_id, opened((0, ("b1", "b2", "b3")), (7, ("b1", "b2", "b4"))), 0)
    await trio.sleep(2 * SOON_S)
    assert await stage.cluster.marked() == {ledger_id: ("b3",)}
    assert await stage.notes() == []


async def test_a_note_stays_until_every_registered_member_has_answered(stage: Stage) -> None:
    ledger_id = await stage.cluster.ledger(closed("b1", "b2", "b3"))
    stage.copies.silent.add("b2")
    stage.copies.has["b2", ledger_id] = range(9)
    await stage.cluster.ledgers.manager.note_unacked(ledger_id, unacked.WHOLE)
    await stage.audit()
    await trio.sleep(100)
    assert await stage.notes() != []
    stage.copies.silent.clear()
    await trio.sleep(100)
    assert await stage.notes() == []
    assert await stage.cluster.marked() == {ledger_id: ("b2",)}


async def test_notes_on_ledgers_that_are_gone_or_whole_go(stage: Stage) -> None:
    ledger_id = await stage.cluster.ledger(closed("b1", "b2", "b3"))
    manager = stage.cluster.ledgers.manager
    await manager.note_unacked(ledger_id, unacked.WHOLE)
    await manager.note_unacked(4711, 3)
    await stage.audit()
    assert await stage.notes() == []
    assert await stage.cluster.marked() == {}


async def test_a_note_is_widened_and_never_narrowed(cluster: Cluster, nursery: trio.Nursery) -> None:
    manager = cluster.ledgers.manager
    await manager.note_unacked(1, 5)
    await cluster.store.create(unacked.folder("/ledgers"), make_parents=True)
    assert await cluster.store.children(unacked.folder("/ledgers")) == [], "where nobody looks nothing is noted"
    for before, stands in ((5, 5), (3, 5), (9, 9), (unacked.WHOLE, -1), (12, -1)):
        await manager.note_unacked(1, before)
        node = await cluster.store.get(unacked.path_of("/ledgers", 1))
        assert node is not None
        assert unacked.decode(node.value) == stands
