"""Progress of repairs: rates from looks, and looks at real marks in a store."""

from __future__ import annotations

import random

import pytest

from autorecovery.marks.underreplication import UnderreplicatedLedgers
from broker.console import cluster_repairs
from broker.console.cluster_repairs import GAP_S, WINDOW_S, Repairs, RepairTracker
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.metadata.local.memory import MemoryStore, MemoryTree

LIVE = frozenset({"a", "b", "c"})


def ids(*spans: range) -> frozenset[int]:
    return frozenset(each for span in spans for each in span)


def test_the_rate_counts_marks_that_are_gone_whatever_is_added() -> None:
    tracker = RepairTracker()
    tracker.look(0.0, ids(range(100)))
    assert (tracker.per_second, tracker.seconds_left()) == (None, None)
    tracker.look(10.0, ids(range(20, 150)))
    assert (tracker.per_second, tracker.added_per_second, tracker.done) == (2.0, 5.0, 20)
    assert tracker.seconds_left() == 65.0


def test_without_a_repair_no_time_is_named_and_without_marks_none_is_left() -> None:
    tracker = RepairTracker()
    tracker.look(0.0, ids(range(3)))
    tracker.look(5.0, ids(range(3)))
    assert (tracker.per_second, tracker.seconds_left()) == (0.0, None)
    tracker.look(6.0, frozenset())
    assert tracker.seconds_left() == 0.0


def test_the_rate_is_of_the_last_window() -> None:
    tracker, left = RepairTracker(), 1000
    for second in range(0, 400, 2):
        left -= 4 if second < 200 else 1
        tracker.look(float(second), ids(range(left)))
    assert tracker.per_second == pytest.approx(0.5)
    assert tracker.seconds <= WINDOW_S + 2


def test_looks_with_a_gap_between_them_are_not_compared() -> None:
    tracker = RepairTracker()
    tracker.look(0.0, ids(range(50)))
    tracker.look(GAP_S + 1, ids(range(5)))
    assert (tracker.per_second, tracker.done) == (None, 0)


class FakeReader:
    """Metadata of ledgers, by id."""

    def __init__(self, bookies: dict[int, tuple[str, ...]]) -> None:
        self.bookies = bookies

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        if ledger_id not in self.bookies:
            raise NoSuchLedgerError(str(ledger_id))
        members = self.bookies[ledger_id]
        return LedgerMetadata(
            ensemble_size=len(members),
            write_quorum=len(members),
            ack_quorum=min(2, len(members)),
            fragments=(Fragment(0, members),),
            state=LedgerState.CLOSED,
            last_entry_id=9,
            length=500,
        )


def marks_of(store: MemoryStore, owner: str = "worker:1") -> UnderreplicatedLedgers:
    return UnderreplicatedLedgers(store, rng=random.Random(1), wall_ms=lambda: 1, owner=owner)


async def test_marks_locks_and_the_most_urgent_ledgers_are_found() -> None:
    store = MemoryStore(MemoryTree())
    marks = marks_of(store)
    await marks.prepare()
    await marks.mark(5, ["x"])
    await marks.mark(5_000_000_000, ["x", "y"])
    await marks.mark(6, ["x"])
    await marks.set_recovery_delay(60)
    locked = await marks.lock_next()
    assert locked is not None
    reader = FakeReader({5: ("a", "b", "x"), 5_000_000_000: ("x", "y", "a")})
    found = await Repairs(store, reader, "/ledgers").look(LIVE)
    assert (found["prepared"], found["enabled"], found["marked"], found["recoveryDelayS"]) == (True, True, 3, 60)
    assert found["locks"] == [{"ledger": locked.ledger_id, "worker": "worker:1"}]
    assert [(each["ledger"], each["harm"]) for each in found["urgent"]] == [
        (5_000_000_000, "BELOW_ACK_QUORUM"),
        (5, "BELOW_WRITE_QUORUM"),
    ], "the fewest copies come first; ledger 6 was deleted"


async def test_a_copy_that_a_mark_names_is_missing_though_its_bookie_answers() -> None:
    store = MemoryStore(MemoryTree())
    await marks_of(store).mark(5, ["a"])
    found = await Repairs(store, FakeReader({5: ("a", "b")}), "/ledgers").look(LIVE)
    assert found["urgent"][0]["harm"] == "BELOW_ACK_QUORUM"


async def test_without_auto_recovery_there_is_nothing_and_it_is_said() -> None:
    found = await Repairs(MemoryStore(MemoryTree()), FakeReader({}), "/ledgers").look(LIVE)
    assert (found["prepared"], found["marked"], found["auditor"], found["secondsLeft"]) == (False, 0, None, 0.0)


async def test_more_marks_than_the_limit_are_said_to_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_repairs, "MARKS_MAX", 3)
    store = MemoryStore(MemoryTree())
    for ledger_id in range(5):
        await marks_of(store).mark(ledger_id, ["x"])
    repairs = Repairs(store, FakeReader({}), "/ledgers")
    found = await repairs.look(LIVE)
    assert (found["marked"], found["markedIsComplete"], found["perSecond"]) == (3, False, None)
    assert found["secondsLeft"] is None


async def test_a_suspended_auto_recovery_is_said() -> None:
    store = MemoryStore(MemoryTree())
    await marks_of(store).prepare()
    await marks_of(store).disable()
    assert not (await Repairs(store, FakeReader({}), "/ledgers").look(LIVE))["enabled"]
