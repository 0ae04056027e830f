"""The checker: bookies whose copies are missing or damaged."""

from __future__ import annotations

import pytest

from autorecovery.fragments import LostReason
from autorecovery.ledger_checker import LedgerChecker
from quire.ledger import LedgerClient
from quire.ledger.reading.copies import CopyFault
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.autorecovery.repair import stored
from tests.unit.ledger.fake_bookie import FakeCluster, write


@pytest.mark.fakes(5)
async def test_good_copies_are_no_news(fakes: FakeCluster, client: LedgerClient, checker: LedgerChecker) -> None:
    for quorums in ((1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2)):
        for count in (0, 1, 2, 150):
            ledger_id, _ = await write(client, count, quorums=quorums)
            for percentage in (0, 30, 100):
                found = await checker.check(ledger_id, await fakes.metadata(ledger_id), percentage=percentage)
                assert found == []


@pytest.mark.fakes(5, read_timeout_s=1.0)
async def test_each_way_to_have_no_good_copy_is_told_with_the_member(fakes, client, checker):
    ledger_id, _, metadata = await stored(fakes, client, 20, quorums=(5, 5, 3))
    missing, damaged, failing, hung, down = fakes.of(metadata.fragments[0].bookies)
    missing.entries.pop(ledger_id)
    damaged.damage(ledger_id, 19)
    failing.refuse = lambda request: Rc.IO
    hung.hung = True
    down.stop()
    [bad] = await checker.check(ledger_id, metadata)
    assert bad.faults == {
        0: CopyFault.MISSING,
        1: CopyFault.DAMAGED,
        2: CopyFault.UNREADABLE,
        3: CopyFault.UNREACHABLE,
        4: CopyFault.UNREACHABLE,
    }
    assert bad.bookies == metadata.fragments[0].bookies
    assert "damaged" in str(bad)


@pytest.mark.fakes(3)
async def test_damage_in_the_middle_is_found_by_reading_everything_only(fakes, client, checker):
    ledger_id, _, metadata = await stored(fakes, client, 50)
    bookie_id = metadata.fragments[0].bookies[1]
    fakes.bookies[bookie_id].damage(ledger_id, 25)
    assert await checker.check(ledger_id, metadata) == []
    assert len(await checker.check(ledger_id, metadata, percentage=100)) == 1
    assert len(await checker.check(ledger_id, metadata, whole=[bookie_id])) == 1


@pytest.mark.fakes(3)
async def test_lost_bookies_are_not_even_asked(monkeypatch, fakes, client, checker):
    ledger_id, _, metadata = await stored(fakes, client, 50)
    lost = fakes.bookies[metadata.fragments[0].bookies[2]]
    lost.requests.clear()
    monkeypatch.setattr(checker, "registered", lambda: frozenset(fakes.bookies) - {lost.bookie_id})
    [bad] = await checker.check(ledger_id, metadata)
    assert bad.faults == {2: LostReason.LOST}
    assert lost.requests == []


@pytest.mark.fakes(3)
async def test_a_busy_bookie_is_asked_again(fakes: FakeCluster, client: LedgerClient, checker: LedgerChecker) -> None:
    ledger_id, _, metadata = await stored(fakes, client, 50)
    busy = fakes.bookies[metadata.fragments[0].bookies[2]]
    asked = 0

    def refuse(request: v2.Request) -> Rc | None:
        nonlocal asked
        asked += 1
        return Rc.TOO_MANY_REQUESTS if asked < 6 else None

    busy.refuse = refuse
    assert await checker.check(ledger_id, metadata) == []
    assert asked >= 6


@pytest.mark.fakes(3)
async def test_what_may_be_on_its_way_to_a_member_of_an_open_fragment_is_not_missing(fakes, client, checker):
    ledger_id, _, metadata = await stored(fakes, client, 20, close=False)
    late, damaged, _ = fakes.of(metadata.fragments[0].bookies)
    late.entries[ledger_id].pop(18)
    assert await checker.check(ledger_id, metadata, lac=18) == []
    damaged.damage(ledger_id, 18)
    [bad] = await checker.check(ledger_id, metadata, lac=18)
    assert (bad.fragment.closed, bad.faults) == (False, {1: CopyFault.DAMAGED})
