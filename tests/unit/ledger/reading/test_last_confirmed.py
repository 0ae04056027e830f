from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import trio

from quire.ledger.bookies.pool import Answer, Body, failed
from quire.ledger.client import LedgerClient
from quire.ledger.errors import (
    BookieTimeoutError,
    BookieUnavailableError,
    LedgerReadError,
    LedgerUnauthorizedError,
)
from quire.ledger.reading.last_confirmed import LacAnswers, take_patiently
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.ledgers import Fragment, LedgerMetadata
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.ledger import fake_v3
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, payloads

DIGEST = Digest(DigestType.CRC32C)
QUORUMS = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2)]


async def open_ledger(
    client: LedgerClient, quorum: tuple[int, int, int], runs: int, reading: LedgerClient | None = None
) -> tuple[LedgerWriter, LedgerReader]:
    """Return the writer of a ledger with `runs` confirmed entries, and a reader opened before them.

    Only the writer knows that the last entry is confirmed.
    """
    size, write, ack = quorum
    writer = await client.create(ensemble_size=size, write_quorum=write, ack_quorum=ack)
    reader = await (reading or client).open_no_recovery(writer.ledger_id)
    seen = Confirmations(writer)
    for entry_id in range(runs):
        await seen.write(entry_id, entry_id)
    return writer, reader


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_a_reader_learns_of_all_but_what_no_later_entry_tells_and_an_explicit_lac_tells_that(quorum, protocol):
    cluster = FakeCluster(5)
    async with cluster.client() as client, cluster.client(protocol=protocol) as reading:
        writer, reader = await open_ledger(client, quorum, 10, reading)
        assert reader.last_entry_id == -1
        assert await reader.read_last_confirmed() == reader.last_entry_id == 8
        members = cluster.members(writer)
        write_set = [(9 + i) % quorum[0] for i in range(quorum[1])]
        for index in write_set[: quorum[2]]:
            fake_v3.explicit_lac(members[index], writer.ledger_id, 9, DIGEST)
        assert await reader.read_last_confirmed() == 9
        assert [bytes(each) for each in await reader.read(0, 9)] == payloads(0, 9)
        assert writer.error is None, "nobody was fenced"
        await writer.write(b"more")


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2), (5, 3, 2)])
async def test_what_was_confirmed_is_found_whichever_bookies_are_away_or_too_few_answer(quorum: tuple[int, int, int]):
    size, write, ack = quorum
    for away in itertools.chain.from_iterable(itertools.combinations(range(size), n) for n in range(size + 1)):
        cluster = FakeCluster(size)
        async with cluster.client(read_timeout_s=2) as client:
            writer, reader = await open_ledger(client, quorum, 10)
            members = cluster.members(writer)
            for index in away:
                members[index].stop()
            hidden = any(len({(r + i) % size for i in range(write)} & set(away)) >= ack for r in range(size))
            if not hidden:
                assert await reader.read_last_confirmed() == 8
            else:
                await raises(LedgerReadError, reader.read_last_confirmed())
            if len(away) < size:
                assert await reader.try_read_last_confirmed() >= reader.last_entry_id
            else:
                await raises(LedgerReadError, reader.try_read_last_confirmed())


async def test_one_bookie_that_knows_more_is_enough_for_a_try(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, reader = await open_ledger(client, (3, 3, 2), 5)
    first, second, third = cluster.members(writer)
    first.hung = True
    second.stop()
    began = trio.current_time()
    assert await reader.try_read_last_confirmed() == 3
    assert trio.current_time() == began
    third.refuse = lambda request: Rc.UNAUTHORIZED
    await raises(LedgerUnauthorizedError, reader.try_read_last_confirmed())


@pytest.mark.bookies(1)
async def test_the_lac_of_a_reader_never_goes_back(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, reader = await open_ledger(client, (1, 1, 1), 5)
    assert await reader.read_last_confirmed() == 3
    ledger = cluster.bookie.entries[writer.ledger_id]
    for entry_id in range(2, 5):
        del ledger[entry_id]
    assert await reader.read_last_confirmed() == 3


def answers(explicit: int | None, last: int | None, *, damage: str = "", rc: Rc = Rc.OK) -> v3.LacAnswer:
    package = None if explicit is None else DIGEST.seal_lac(7, explicit)
    entry = None if last is None else DIGEST.seal(7, last + 1, last, 100, b"payload") + b"payload"
    if damage == "explicit" and package is not None:
        package = package[:-1] + bytes([package[-1] ^ 1])
    if damage == "entry" and entry is not None:
        entry = entry[:-1] + bytes([entry[-1] ^ 1])
    return v3.LacAnswer(rc, 7, package, None if entry is None else memoryview(entry))


def lac_answers(first: int = 0) -> LacAnswers:
    bookies = ("a", "b", "c")
    fragments = (Fragment(0, bookies),) if not first else (Fragment(0, ("d", "b", "c")), Fragment(first, bookies))
    metadata = LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        fragments=fragments,
        digest_type=DigestType.CRC32C,
        password=b"",
        custom_metadata=(),
    )
    return LacAnswers(7, metadata, DIGEST)


@pytest.mark.parametrize(
    ("answer", "lac", "counts"),
    [
        (answers(5, 3), 5, True),
        (answers(3, 5), 5, True),
        (answers(None, 5), 5, True),
        (answers(5, None, rc=Rc.IO), 5, True),
        (answers(None, None, rc=Rc.NO_ENTRY), -1, True),
        (v3.LacAnswer(Rc.NO_LEDGER, 7, None, None), -1, True),
        (answers(9, 5, damage="explicit"), -1, False),
        (answers(5, 9, damage="entry"), 5, False),
        (answers(None, None, rc=Rc.IO), -1, False),
        (v2.OtherResponse(7, Rc.BAD_REQUEST, -1, -1), -1, False),
        (BookieUnavailableError("gone"), -1, False),
    ],
)
def test_the_greater_of_the_valid_ones_counts_and_damage_is_no_answer(answer, lac, counts):
    found = lac_answers()
    found.take(0, answer)
    assert (found.best.lac, found.answered) == (lac, counts)
    assert bool(found.causes) == (not counts)
    found.take(1, answer)
    assert found.covered == counts, "two of three are enough, as no two others can confirm anything alone"


def test_what_came_before_the_last_fragment_is_confirmed_whatever_its_bookies_know() -> None:
    found = lac_answers(first=40)
    found.take(0, answers(None, None, rc=Rc.NO_ENTRY))
    assert found.best.lac == 39


@pytest.mark.parametrize("fault", ["hung", "busy"])
async def test_an_open_ledger_is_opened_though_a_bookie_hangs_or_all_are_busy(cluster, client, fault):
    writer, _ = await open_ledger(client, (3, 3, 2), 5)
    for bookie in list(cluster.bookies.values())[: 1 if fault == "hung" else 3]:
        bookie.fail(fault)
    began = trio.current_time()
    reader = await client.open(writer.ledger_id, recover=False)
    assert reader.last_entry_id == 3
    assert trio.current_time() - began < 1


def said(rc: Rc) -> v2.OtherResponse:
    return v2.OtherResponse(rc=rc, opcode=v2.Opcode.READ, ledger_id=7, entry_id=0)


AWAY = BookieUnavailableError("away")


async def taken(
    first: list[Answer], again: Callable[[int], Answer], enough: int
) -> list[tuple[int, Rc | type[Exception]]]:
    """Return the outcomes that `take_patiently` passes on, by place, until it is `enough`."""
    found: list[tuple[int, Rc | type[Exception]]] = []

    def take(place: int, outcome: Body | BookieUnavailableError) -> bool:
        found.append((place, type(outcome) if isinstance(outcome, Exception) else Rc(outcome.rc)))
        return len(found) == enough

    async with FakeCluster(1).client(read_timeout_s=10) as client:
        await take_patiently(client._context, first, again, take)
    return found


def nobody(place: int) -> Answer:
    raise AssertionError(f"place {place} is asked again")


async def test_answers_are_taken_as_they_come_until_enough() -> None:
    answers = [Answer(0) for _ in range(4)]

    async def settle() -> None:
        for place in (2, 0, 3):
            await trio.sleep(1)
            answers[place].settle(said(Rc.NO_ENTRY))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(settle)
        assert await taken(answers, nobody, 3) == [(2, Rc.NO_ENTRY), (0, Rc.NO_ENTRY), (3, Rc.NO_ENTRY)]
    assert await taken([], nobody, 1) == []


async def test_a_bookie_that_cannot_be_reached_is_asked_again_while_another_hangs() -> None:
    hung = Answer(0)
    asked: list[float] = []

    def again(place: int) -> Answer:
        assert place == 1
        asked.append(trio.current_time())
        answer = failed(AWAY) if trio.current_time() < 2 else Answer(0)
        answer.settle(said(Rc.NO_ENTRY))
        return answer

    assert await taken([hung, failed(AWAY)], again, 1) == [(1, Rc.NO_ENTRY)]
    assert trio.current_time() < 2.3
    assert len(asked) < 20, "with growing pauses"


async def test_a_busy_bookie_is_asked_again_though_another_hangs() -> None:
    def again(place: int) -> Answer:
        answer = Answer(0)
        answer.settle(said(Rc.NO_ENTRY if trio.current_time() > 1 else Rc.TOO_MANY_REQUESTS))
        return answer

    assert await taken([Answer(0), again(1)], again, 1) == [(1, Rc.NO_ENTRY)]
    assert trio.current_time() < 1.3


async def test_nobody_waits_for_bookies_none_of_which_can_be_reached() -> None:
    assert await taken([failed(AWAY), failed(AWAY)], nobody, 3) == [(0, type(AWAY)), (1, type(AWAY))]
    assert trio.current_time() == 0


async def test_when_the_one_that_hangs_is_given_up_the_others_are_too() -> None:
    hung = Answer(0)
    timeout = BookieTimeoutError("too late")

    async def settle() -> None:
        await trio.sleep(10)
        hung.settle(timeout)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(settle)
        found = await taken([hung, failed(AWAY)], lambda place: failed(AWAY), 3)
    assert found == [(0, BookieTimeoutError), (1, BookieUnavailableError)], "each once"
    assert trio.current_time() == 10
