from __future__ import annotations

import pytest
import trio

from quire.ledger import LedgerClient, open_client_on
from quire.ledger.bookies.health import UNREACHABLE_S, BookieHealth
from quire.ledger.bookies.watcher import WatcherConfig
from quire.ledger.errors import (
    BookieError,
    BookieProtocolError,
    BookieRefusedError,
    BookieTimeoutError,
    BookieUnavailableError,
)
from quire.metadata.local.memory import MemoryTree
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from tests.unit.ledger.fake_bookie import FakeCluster
from tests.unit.ledger.served_bookie import BOOKIE_ID, a_bookie

SICK = [Rc.IO, Rc.TOO_MANY_REQUESTS, Rc.UNKNOWN_LEDGER_STATE]
WELL = [Rc.OK, Rc.NO_ENTRY, Rc.NO_LEDGER, Rc.FENCED, Rc.READ_ONLY]
OURS = [Rc.UNAUTHORIZED, Rc.BAD_REQUEST, Rc.BAD_VERSION]
"""Answers that every bookie would give: they count, and change no order."""


@pytest.mark.parametrize("rc", list(Rc))
async def test_a_sick_bookie_is_asked_last_for_a_minute_and_what_an_able_one_may_answer_says_nothing(rc: Rc) -> None:
    assert {*SICK, *WELL, *OURS} == set(Rc), "every code is judged"
    health = BookieHealth()
    health.refused("a", rc)
    assert health.failed_at("a") == (trio.current_time() if rc in SICK else None)
    assert health.failed_at("b") is None
    await trio.sleep(59.9)
    assert (health.failed_at("a") is not None) == (rc in SICK)
    await trio.sleep(0.1)
    assert health.failed_at("a") is None
    assert health.take_errors() == ({"a": 1} if rc in SICK + OURS else {})


@pytest.mark.parametrize(
    ("error", "errors"),
    [
        (BookieUnavailableError("gone"), 0),
        (BookieTimeoutError("late"), 1),
        (BookieProtocolError("rubbish"), 1),
        (BookieRefusedError("no", Rc.IO), 1),
        (BookieRefusedError("no", Rc.READ_ONLY), 0),
    ],
)
async def test_timeouts_count_and_who_is_gone_does_not(error: BookieError, errors: int) -> None:
    health = BookieHealth()
    for _ in range(3):
        health.failed("a", error)
    assert health.take_errors() == ({"a": 3} if errors else {})
    assert health.take_errors() == {}, "those were told"
    read_only = isinstance(error, BookieRefusedError) and error.rc == Rc.READ_ONLY
    assert (health.failed_at("a") is None) == read_only


def test_requests_under_way_are_counted() -> None:
    health = BookieHealth()
    assert health.pending("a") == 0
    health.asked("a", 5)
    health.asked("a")
    health.answered("a", 2)
    assert (health.pending("a"), health.pending("b")) == (4, 0)


def test_what_is_expected_of_a_bookie_follows_what_it_does() -> None:
    health = BookieHealth()
    assert health.expected_s("a") == 0
    for _ in range(100):
        health.took("a", 0.001)
    assert health.expected_s("a") == pytest.approx(0.001, rel=0.01)
    health.took("a", 0.1)
    assert 0.1 < health.expected_s("a") < 0.2, "one late answer makes it unsure"
    for _ in range(100):
        health.took("a", 0.1)
    assert health.expected_s("a") == pytest.approx(0.1, rel=0.01)
    for _ in range(50):
        health.took("b", 0.001)
        health.took("b", 0.003)
    assert health.expected_s("b") > 0.003, "nearly every answer is within it"


async def test_errors_put_a_bookie_into_quarantine_for_its_time(world: World) -> None:
    watcher = WatcherConfig(health_check=True, health_check_errors=3, quarantine_s=100)
    async with a_bookie(world, MemoryTree()) as store, open_client_on(world, store, watcher=watcher) as client:
        context = client._context
        assert context.watcher is not None
        for _ in range(3):
            context.health.refused(BOOKIE_ID, Rc.IO)
        await trio.sleep(61)
        assert context.watcher.cluster().quarantined == {BOOKIE_ID}
        await trio.sleep(100)
        assert context.watcher.cluster().quarantined == frozenset()


@pytest.mark.bookies(4)
async def test_a_failed_add_is_remembered_for_readers_too(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    failing = writer.metadata.fragments[0].bookies[1]
    cluster.bookies[failing].refuse = lambda request: Rc.IO
    await writer.write(b"an entry")
    health = client._context.health
    assert [each for each in cluster.bookies if health.failed_at(each) is not None] == [failing]
    assert health.take_errors() == {failing: 1}


async def test_who_cannot_be_reached_is_known_to_be_so_for_a_moment() -> None:
    health = BookieHealth()
    health.failed("gone", BookieUnavailableError("refused"))
    health.failed("late", BookieTimeoutError("no answer"))
    health.failed("sick", BookieRefusedError("no", Rc.IO))
    health.overtaken("slow")
    assert health.unreachable() == {"gone"}
    await trio.sleep(UNREACHABLE_S)
    assert health.unreachable() == frozenset()
