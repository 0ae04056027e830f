"""Questions of a bookie before it deletes a ledger of others. Covers autorecovery/other_copies.py."""

from __future__ import annotations

import pytest

from autorecovery.other_copies import HolderChecks
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.autorecovery.cluster import Cluster
from tests.unit.autorecovery.repair import stored


@pytest.fixture
async def copies(checker, cluster: Cluster) -> HolderChecks:
    return HolderChecks(checker, cluster.marks)


@pytest.mark.fakes(4)
async def test_every_member_of_the_write_set_of_each_entry_is_read(fakes, client, copies):
    ledger_id, _, metadata = await stored(fakes, client, 20, quorums=(3, 2, 2))
    assert await copies.lacking(ledger_id, metadata, range(20)) == ""
    member = fakes.bookies[metadata.fragments[0].bookies[1]]
    assert member.entries[ledger_id].pop(7), "it has entry 7 of 2, 2 of 3"
    assert await copies.lacking(ledger_id, metadata, [0, 1, 2]) == ""
    assert "entry 7" in await copies.lacking(ledger_id, metadata, range(20))


@pytest.mark.fakes(4, read_timeout_s=1.0)
@pytest.mark.parametrize("how", ["missing", "damaged", "failing", "hung", "down", "unregistered"])
async def test_a_copy_that_is_not_certain_is_told(monkeypatch, fakes, client, checker, copies, how):
    ledger_id, _, metadata = await stored(fakes, client, 20, quorums=(3, 3, 2))
    member = fakes.bookies[metadata.fragments[0].bookies[2]]
    if how == "missing":
        member.entries.pop(ledger_id)
    elif how == "damaged":
        member.damage(ledger_id, 13)
    elif how == "failing":
        member.refuse = lambda request: Rc.IO
    elif how == "hung":
        member.hung = True
    elif how == "down":
        member.stop()
    else:
        monkeypatch.setattr(checker, "registered", lambda: frozenset(fakes.bookies) - {member.bookie_id})
    assert member.bookie_id in await copies.lacking(ledger_id, metadata, [12, 13])


async def test_a_ledger_that_is_marked_or_locked_is_not_held(copies, cluster):
    async with copies.hold(5) as held, copies.hold(5) as again:
        assert (held, again) == (True, False)
        assert await cluster.marks.locked_by(5) is not None
    assert await cluster.marks.locked_by(5) is None
    await cluster.marks.mark(5, ["b:1"])
    async with copies.hold(5) as held:
        assert not held
    assert await cluster.marks.locked_by(5) is None
