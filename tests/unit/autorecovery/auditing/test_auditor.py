from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from autorecovery.auditing.auditor import Auditor, wait_before_check
from autorecovery.auditing.checks import Adheres
from autorecovery.auditing.metrics import AuditorStats
from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import IncompatibleUnderreplicationError
from autorecovery.fragments import BadFragment
from autorecovery.marks.underreplication import CheckTime
from quire.ledger.placement.policy import Adherence
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.ledgers import LedgerMetadata
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import Op
from tests.support.datadriven import Line
from tests.support.datadriven import check as check_file
from tests.support.refusals import raises
from tests.unit.autorecovery.cluster import EPOCH_MS, Cluster, closed

BASE = "/ledgers/underreplication"
SOON_S = 0.5
"""Virtual seconds in which an auditor completes everything that it can do."""


def auditor_of(
    cluster: Cluster,
    store: MemoryStore | None = None,
    *,
    check: Callable[[], Awaitable[None]] | None = None,
    adheres: Adheres | None = None,
    **settings: Any,
) -> Auditor:
    """Return an auditor. `check` is called for each ledger whose copies are to be read; all copies are good."""
    store = store or cluster.store
    config = AutoRecoveryConfig(**{"ledger_check_interval_s": 0, **settings})
    ledgers = cluster.ledgers if store is cluster.store else cluster.ledgers_of(store)
    checker = GoodCopies(check) if check is not None else None
    marks = cluster.marks_of(store)
    return Auditor(
        store, ledgers, marks, config, wall_ms=cluster.wall_ms, rng=Random(1), checker=checker, adheres=adheres
    )


class GoodCopies:
    """A checker that finds nothing."""

    def __init__(self, called: Callable[[], Awaitable[None]]) -> None:
        self._called = called

    async def check(self, ledger_id: int, metadata: LedgerMetadata, *, percentage: int = 0) -> list[BadFragment]:
        await self._called()
        return []


def audited(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return what is marked at the times of the steps `at`, in seconds.

    The command begins an auditor of the bookies that are left without those `gone`, and three ledgers on b1 b2, b2 b3
    and b1 b3; time 0 is when it has done what it can. `before-read` takes a step before a ledger's metadata is read.
    """
    if command.name != "auditor":
        raise command.unknown()
    keys = {"delay": "lost_bookie_recovery_delay_s", "check": "bookie_check_interval_s"}
    settings: dict[str, Any] = {keys[name]: command.option_number(name) for name in keys if name in command.options}
    bookies = command.option("bookies", "b1,b2,b3,b4").split(",")
    gone = [each for each in command.option("gone", "").split(",") if each]

    async def story() -> list[str]:
        cluster = Cluster()
        await cluster.begin(*bookies)
        for members in (("b1", "b2"), ("b2", "b3"), ("b1", "b3")):
            await cluster.ledger(closed(*members))
        for each in gone:
            await cluster.go(each)
        auditor = auditor_of(cluster, **settings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor.run)
            await trio.sleep(SOON_S)
            began = trio.current_time()
            output = []
            for step in steps:
                if step.name == "at":
                    await trio.sleep_until(began + float(step.word()))
                    output.append(f"{step.text}: {await marked(cluster)}{counted(auditor.stats)}")
                else:
                    await act(cluster, step)
            nursery.cancel_scope.cancel()
        return output

    return trio.run(story, clock=MockClock(autojump_threshold=0))


async def act(cluster: Cluster, step: Line) -> None:
    match step.name:
        case "go":
            await cluster.go(step.word())
        case "come":
            await cluster.come(step.word(), read_only=step.option("read-only", "no") == "yes")
        case "wait":
            await trio.sleep(step.number())
        case "ledger":
            await cluster.ledger(closed(*step.word().split(",")))
        case "delay":
            await cluster.marks.set_recovery_delay(step.number())
        case "delay-damaged":
            await cluster.store.put(f"{BASE}/lostBookieRecoveryDelay", b"soon", 0)
        case "disable":
            await cluster.marks.disable()
        case "enable":
            await cluster.marks.enable()
        case "unavailable":
            raise MetadataUnavailableError("away")
        case "before-read":
            first = Line.of(step.where, step.text.partition(" ")[2])
            step.words.clear()

            async def before_read() -> None:
                cluster.ledgers.before_read = None
                await act(cluster, first)
                await trio.sleep(SOON_S)

            cluster.ledgers.before_read = before_read
        case _:
            raise step.unknown()


async def marked(cluster: Cluster) -> str:
    marks = [f"{ledger_id} lost {' '.join(missing)}" for ledger_id, missing in (await cluster.marked()).items()]
    return ", ".join(marks) or "nothing"


def counted(stats: AuditorStats) -> str:
    """Return the counts of audits that were not simply made."""
    counts = {"delayed": stats.audits_delayed, "cancelled": stats.audits_cancelled, "failed": stats.audits_failed}
    return "".join(f"; {count} {name}" for name, count in counts.items() if count)


def test_cases() -> None:
    check_file(Path(__file__).parent / "testdata" / "auditor.txt", audited)


async def test_the_marks_of_lost_bookies_are_counted(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1", "b2", "b3")
    for members in (("b1", "b2"), ("b2", "b3"), ("b1", "b3")):
        await cluster.ledger(closed(*members))
    auditor = auditor_of(cluster)
    nursery.start_soon(auditor.run)
    for lost in ("b1", "b3"):
        await trio.sleep(SOON_S)
        await cluster.go(lost)
    await trio.sleep(SOON_S)
    stats = auditor.stats
    assert (stats.marked_now, sum(stats.underreplicated.counts), stats.underreplicated.total) == (3, 3, 6)
    assert stats.underreplicated_bytes.total == 6000


async def test_a_damaged_ledger_does_not_keep_the_others_from_being_marked(log_events, cluster, nursery):
    async def story(cluster: Cluster, nursery: trio.Nursery) -> None:
        await cluster.begin("b1", "b2")
        await cluster.make(3, "b1", "b2")
        await cluster.store.put(cluster.ledgers.manager.path(1), b"damaged", 0)
        await cluster.go("b1")
        nursery.start_soon(auditor_of(cluster).run)
        await trio.sleep(SOON_S)
        assert sorted(await cluster.marked()) == [0, 2]

    await story(cluster, nursery)
    assert any(event["event"].startswith("cannot read the metadata of a ledger") for event in log_events)


async def test_two_auditors_at_once_do_what_one_does(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1", "b2", "b3")
    await cluster.make(20, "b1", "b2", "b3")
    for _ in range(2):
        store = MemoryStore(cluster.tree, latency=lambda: cluster.rng.random() / 100)
        nursery.start_soon(auditor_of(cluster, store).run)
    await trio.sleep(5)
    await cluster.go("b1")
    await cluster.go("b2")
    await trio.sleep(60)
    assert {number: sorted(missing) for number, missing in (await cluster.marked()).items()} == {
        number: ["b1", "b2"] for number in range(20)
    }


@pytest.mark.parametrize("marks_made", [0, 1, 7, 29])
async def test_an_auditor_stopped_anywhere_is_followed_by_one_that_does_the_rest(
    marks_made: int, cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.begin("b1", "b2", "b3")
    await cluster.make(30, "b1", "b2")
    await cluster.go("b1")
    store = MemoryStore(cluster.tree)
    multi = store.multi
    made = 0

    async def counted(ops: Sequence[Op]) -> list[str]:
        nonlocal made
        if "urL" in ops[-1].path:
            if made == marks_made:
                scope.cancel()
                await trio.sleep_forever()
            made += 1
        return await multi(ops)

    monkeypatch.setattr(store, "multi", counted)
    with trio.CancelScope() as scope:
        await auditor_of(cluster, store, open_ledgers_max=1).run()
    assert len(await cluster.marked()) == marks_made
    with trio.move_on_after(10):
        await auditor_of(cluster).run()
    assert sorted(await cluster.marked()) == list(range(30))


async def test_the_end_of_the_session_ends_the_auditor(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1")
    store = MemoryStore(cluster.tree)

    async def expire() -> None:
        await trio.sleep(5)
        cluster.tree.expire(store.session)

    nursery.start_soon(expire)
    await raises(SessionExpiredError, auditor_of(cluster, store).run())


async def test_an_auditor_does_not_touch_marks_of_another_layout(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1")
    await cluster.store.create(f"{BASE}/LAYOUT", b'type: "BASIC"\nversion: 9\n', make_parents=True)
    await raises(IncompatibleUnderreplicationError, auditor_of(cluster).run())


# --------------------------------------------------------------------------------------------- checks of all ledgers


def test_a_check_is_due_when_its_interval_has_passed_since_anybody_made_it() -> None:
    assert wait_before_check(100, None, 5_000) == 0
    assert wait_before_check(100, 4_000, 5_000) == 99
    assert wait_before_check(100, 5_000, 205_000) == 0
    assert wait_before_check(100, 9_000, 5_000) == 100


async def test_checks_of_all_ledgers_are_made_from_time_to_time_one_after_the_other_and_their_times_kept(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    await cluster.begin("b1", "b2")
    await cluster.ledger(closed("b1", "b2"))
    made: list[tuple[float, str]] = []

    def adheres(ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        made.append((trio.current_time(), "placement"))
        return Adherence.MEETS_STRICT

    async def check() -> None:
        made.append((trio.current_time(), "ledgers"))
        await trio.sleep(110)

    await cluster.marks.set_check_time(CheckTime.PLACEMENT, EPOCH_MS - 200_000)
    auditor = auditor_of(
        cluster, check=check, adheres=adheres, ledger_check_interval_s=1000, placement_check_interval_s=300
    )
    nursery.start_soon(auditor.run)
    await trio.sleep(1150)
    assert sorted((round(at), name) for at, name in made) == [
        (0, "ledgers"),
        (110, "placement"),  # due at 100, while the other check runs
        (410, "placement"),
        (710, "placement"),
        (1010, "placement"),
        (1110, "ledgers"),
    ]
    assert await cluster.marks.check_time(CheckTime.ALL_LEDGERS) == EPOCH_MS + 110_000
    assert await cluster.marks.check_time(CheckTime.REPLICAS) is None


async def test_checks_of_all_ledgers_wait_while_a_bookie_is_waited_for_or_all_is_disabled(cluster, nursery):
    await cluster.begin("b1", "b2", "b3")
    await cluster.ledger(closed("b1", "b2"))
    await cluster.go("b3")
    made: list[float] = []

    async def check() -> None:
        made.append(trio.current_time())
        if len(made) == 1:
            await cluster.marks.disable()
        await trio.sleep(1)

    auditor = auditor_of(cluster, check=check, ledger_check_interval_s=1000, lost_bookie_recovery_delay_s=30)
    nursery.start_soon(auditor.run)
    await trio.sleep(500)
    assert [round(at) for at in made] == [30]
    assert auditor.stats.checks_skipped == 2  # (the check of the bookies, and the one of the ledgers)
    assert await cluster.marks.check_time(CheckTime.ALL_LEDGERS) is None
    await cluster.marks.enable()
    await trio.sleep(10)
    assert [round(at) for at in made] == [30, 500]
    assert await cluster.marks.check_time(CheckTime.ALL_LEDGERS) == EPOCH_MS + 501_000


async def test_a_check_that_fails_is_made_again_before_its_next_time(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1", "b2")
    await cluster.ledger(closed("b1", "b2"))
    made: list[float] = []

    async def check() -> None:
        made.append(trio.current_time())
        if len(made) == 1:
            raise MetadataUnavailableError("away")
        if len(made) == 2:
            await trio.sleep_forever()

    auditor = auditor_of(cluster, check=check, ledger_check_interval_s=1000, open_ledger_wait_ms=20_000)
    nursery.start_soon(auditor.run)
    await trio.sleep(999)
    assert [round(at) for at in made] == [0, 60, 140]
    assert auditor.stats.ledger_checks_failed == 2
