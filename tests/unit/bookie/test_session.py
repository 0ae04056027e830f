"""Answers to a client of one bookie, and their timing."""

from __future__ import annotations

from struct import pack

import pytest

from bookie.bookie import Bookie
from bookie.journal.format import Fence, LedgerKey
from bookie.reads import SHARE
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Opcode, Rc
from tests.unit.bookie.build import (
    DIGEST,
    JOURNAL,
    KEY,
    OTHER_KEY,
    Client,
    add_frame,
    add_frames,
    entry,
)
from tests.unit.bookie.journal.bench import replayed


def journalled(bookie: Bookie) -> list[object]:
    """Return the records that the journal has on disk."""
    return replayed(bookie.world, JOURNAL)


async def test_an_add_is_answered_when_it_is_in_the_journal_and_not_before(bookie: Bookie, client: Client) -> None:
    client.send(add_frames(7, 0, 3))
    assert client.answers == []
    assert await client.take() == [v2.AddAcks(Rc.OK, 7, 0, 2)]
    assert journalled(bookie) == [LedgerKey(7, KEY), (7, 0, 2)]


async def test_answers_of_a_pass_leave_in_one_write_even_over_several_receives(client: Client) -> None:
    for first in range(0, 50, 10):
        client.send(add_frames(7, first, 10))
    assert await client.take() == [v2.AddAcks(Rc.OK, 7, 0, 49)]
    assert client.writes == 1


async def test_each_session_gets_its_own_answers(bookie: Bookie) -> None:
    first, second = Client(bookie), Client(bookie)
    first.send(add_frames(7, 0, 2))
    second.send(add_frames(8, 0, 2))
    assert await first.take() == [v2.AddAcks(Rc.OK, 7, 0, 1)]
    assert await second.take() == [v2.AddAcks(Rc.OK, 8, 0, 1)]


async def test_entries_are_read_back_as_they_came_from_memory_and_from_disk(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 5)
    assert bytes((await client.read(7, 3)).entry) == entry(7, 3)
    assert (bookie.stats.reads, bookie.stats.reads_cached) == (1, 1)
    await bookie.checkpoint()
    assert bytes((await client.read(7, 3)).entry) == entry(7, 3)
    assert (bookie.stats.reads, bookie.stats.reads_cached) == (2, 1)


async def test_minus_one_reads_the_last_entry_wherever_it_is(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 5)
    assert bytes((await client.read(7, -1)).entry) == entry(7, 4)
    await bookie.checkpoint()
    assert bytes((await client.read(7, -1)).entry) == entry(7, 4)
    await client.add(7, 5)
    assert bytes((await client.read(7, -1)).entry) == entry(7, 5)


async def test_a_missing_entry_and_a_missing_ledger_are_told_apart(client: Client) -> None:
    await client.add(7, 0)
    assert (await client.read(7, 1)).rc == Rc.NO_ENTRY
    assert (await client.read(8, 0)).rc == Rc.NO_LEDGER
    assert (await client.read(8, -1)).rc == Rc.NO_LEDGER
    assert (await client.read(7, -2)).rc == Rc.BAD_REQUEST


async def test_another_master_key_is_refused_for_adds_and_fences(client: Client) -> None:
    await client.add(7, 0)
    assert await client.ask(add_frame(7, 1, key=OTHER_KEY)) == [v2.AddAcks(Rc.UNAUTHORIZED, 7, 1, 1)]
    assert (await client.fence(7, OTHER_KEY)).rc == Rc.UNAUTHORIZED
    assert (await client.add(7, 1)) == v2.AddAcks(Rc.OK, 7, 1, 1)


async def test_a_fence_is_in_the_journal_before_it_is_answered_even_without_an_entry(bookie: Bookie, client: Client):
    client.send(v2.read_request(7, -1, v2.DO_FENCING, KEY))
    assert client.answers == []
    (answer,) = await client.take()
    assert isinstance(answer, v2.ReadResponse)
    assert answer.rc == Rc.NO_ENTRY
    assert journalled(bookie) == [LedgerKey(7, KEY), Fence(7)]


async def test_after_a_fence_only_recovery_adds_are_taken(bookie: Bookie) -> None:
    writer, recovery = Client(bookie), Client(bookie)
    await writer.add(7, 0)
    answer = await recovery.fence(7)
    assert bytes(answer.entry) == entry(7, 0)
    assert await writer.add(7, 1) == v2.AddAcks(Rc.FENCED, 7, 1, 1)
    assert await recovery.add(7, 1, flags=v2.RECOVERY_ADD) == v2.AddAcks(Rc.OK, 7, 1, 1)


async def test_adds_behind_a_fence_in_the_same_pass_are_refused_and_those_before_it_are_seen_by_it(client: Client):
    client.send(
        add_frames(7, 0, 2) + v2.read_request(7, -1, v2.DO_FENCING, KEY) + add_frames(7, 2, 1),
    )
    answers = await client.take(3)
    assert v2.AddAcks(Rc.OK, 7, 0, 1) in answers
    assert v2.AddAcks(Rc.FENCED, 7, 2, 2) in answers
    (read,) = [answer for answer in answers if isinstance(answer, v2.ReadResponse)]
    assert bytes(read.entry) == entry(7, 1)


async def test_fences_at_once_write_one_record_and_later_ones_none(bookie: Bookie) -> None:
    clients = [Client(bookie) for _ in range(5)]
    for client in clients:
        client.send(v2.read_request(7, -1, v2.DO_FENCING, KEY))
    for client in clients:
        await client.take()
    await clients[0].fence(7)
    assert journalled(bookie) == [LedgerKey(7, KEY), Fence(7)]
    assert bookie.stats.fences == 1


async def test_a_read_only_bookie_takes_only_adds_of_high_priority(bookie: Bookie, client: Client) -> None:
    bookie.read_only = True
    assert await client.add(7, 0) == v2.AddAcks(Rc.READ_ONLY, 7, 0, 0)
    assert await client.add(7, 0, flags=v2.HIGH_PRIORITY) == v2.AddAcks(Rc.OK, 7, 0, 0)


def batch(answers: list[v2.Response]) -> list[bytes]:
    (answer,) = answers
    assert isinstance(answer, v2.BatchResponse)
    assert answer.rc == Rc.OK
    return [bytes(each) for each in answer.entries]


async def test_batch_reads_stop_at_count_size_and_the_first_gap(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 10)
    await client.add(7, 11, 2)
    one = 4 + len(entry(7, 0))
    for _ in range(2):
        assert batch(await client.ask(v2.batch_read_request(7, 0, 1, 3, 1 << 20))) == [entry(7, i) for i in range(3)]
        assert len(batch(await client.ask(v2.batch_read_request(7, 0, 2, 100, 36 + 4 * one)))) == 4
        assert len(batch(await client.ask(v2.batch_read_request(7, 0, 3, 100, 35 + 4 * one)))) == 3
        assert len(batch(await client.ask(v2.batch_read_request(7, 0, 4, 100, 1)))) == 1
        found = batch(await client.ask(v2.batch_read_request(7, 4, 5, 0, 1 << 40)))
        assert found == [entry(7, i) for i in range(4, 10)]
        await bookie.checkpoint()


@pytest.mark.bookie(read_ahead_entries=30)
async def test_a_batch_is_filled_from_the_disk_where_a_cache_ends(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 100)
    await bookie.checkpoint()
    assert bytes((await client.read(7, 0)).entry) == entry(7, 0)
    assert bytes((await client.read(7, 1)).entry) == entry(7, 1)  # the second one in order reads ahead
    assert bookie.storage.read_cache_bytes == 0, "it was handed over, and not taken in yet"
    asked = [entry(7, i) for i in range(2, 62)]
    assert batch(await client.ask(v2.batch_read_request(7, 2, 1, 60, 1 << 20))) == asked
    for count in (10, 40):
        size = 32 + sum(4 + len(each) for each in asked[:count])
        assert batch(await client.ask(v2.batch_read_request(7, 2, 1, 60, size + 4))) == asked[:count]
        assert batch(await client.ask(v2.batch_read_request(7, 2, 1, 60, size + 3))) == asked[: count - 1]


async def test_a_batch_at_the_end_of_the_write_cache_needs_no_worker(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 10)
    assert len(batch(await client.ask(v2.batch_read_request(7, 4, 1, 100, 1 << 20)))) == 6
    assert bookie.stats.reads_cached == 1


@pytest.mark.bookie(read_ahead_entries=30)
async def test_what_the_caches_have_of_a_batch_is_answered_when_no_worker_is_free(bookie, client, monkeypatch) -> None:
    await client.add(7, 0, 100)
    await bookie.checkpoint()
    await client.read(7, 0)
    await client.read(7, 1)
    monkeypatch.setattr(Bookie, "read_by_worker", lambda *_, **__: False)
    (answer,) = await client.ask(v2.batch_read_request(7, 2, 1, 60, 1 << 20))
    assert answer.rc == Rc.OK
    assert [bytes(each) for each in answer.entries] == [entry(7, i) for i in range(2, 2 + len(answer.entries))]
    assert 0 < len(answer.entries) < 60
    (answer,) = await client.ask(v2.batch_read_request(7, 90, 2, 60, 1 << 20))
    assert answer.rc == Rc.TOO_MANY_REQUESTS


async def test_batch_reads_of_what_is_not_there_say_so(client: Client) -> None:
    await client.add(7, 0, 2)
    assert await client.ask(v2.batch_read_request(7, 2, 5, 10, 1000)) == [v2.BatchResponse(Rc.NO_ENTRY, 7, 2, 5, [])]
    assert await client.ask(v2.batch_read_request(8, 0, 6, 10, 1000)) == [v2.BatchResponse(Rc.NO_LEDGER, 8, 0, 6, [])]
    assert await client.ask(v2.batch_read_request(7, -1, 7, 10, 1000)) == [
        v2.BatchResponse(Rc.BAD_REQUEST, 7, -1, 7, [])
    ]


async def test_a_big_entry_in_two_pieces_is_kept_and_read_whole(bookie: Bookie, client: Client) -> None:
    payload = bytes(range(256)) * 400
    head = DIGEST.seal(7, 0, -1, len(payload), payload)
    await client.ask((v2.add_head(len(head) + len(payload), KEY) + head, payload))
    assert bytes((await client.read(7, 0)).entry) == head + payload
    await bookie.checkpoint()
    assert bytes((await client.read(7, 0)).entry) == head + payload


async def test_what_is_not_served_is_answered_and_the_session_goes_on(client: Client) -> None:
    client.send(pack("!iBBH", 4, 2, Opcode.GET_BOOKIE_INFO, 0) + pack("!iBBH", 4, 9, 9, 0))
    assert await client.take(2) == [
        v2.OtherResponse(Opcode.GET_BOOKIE_INFO, Rc.BAD_REQUEST, -1, -1),
        v2.OtherResponse(9, Rc.BAD_VERSION, -1, -1),
    ]
    client.send(pack("!iBBH", 4, 2, Opcode.AUTH, 0))
    assert await client.take() == [v2.AuthResponse(b"\x0a\x12AuthDisabledPlugin\x12\x00")]
    assert await client.add(7, 0) == v2.AddAcks(Rc.OK, 7, 0, 0)


async def test_garbage_closes_the_session_after_what_came_before_it(client: Client) -> None:
    await client.add(7, 0)
    client.send(v2.read_request(7, 0) + b"GET / HTTP/1.1\r\n\r\n")
    assert [type(answer).__name__ for answer in client.answers] == ["ReadResponse"]
    assert client.session.closed
    client.send(v2.read_request(7, 0))
    assert len(client.answers) == 1


async def test_a_closed_session_is_answered_nothing_but_its_adds_are_carried_out(bookie: Bookie) -> None:
    client, other = Client(bookie), Client(bookie)
    client.send(add_frames(7, 0, 2))
    client.session.close()
    await other.add(8, 0)
    assert client.raw == b""
    assert (7, 0, 1) in journalled(bookie)


@pytest.mark.bookie(reads_in_flight_max=2, read_workers=1)
async def test_reads_above_the_bound_are_refused(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0)
    client.send(b"".join(v2.read_request(7, i) for i in range(1, 5)))
    answers = await client.take(4)
    codes = sorted(answer.rc for answer in answers if isinstance(answer, v2.ReadResponse))
    assert codes == [Rc.NO_ENTRY] * 2 + [Rc.TOO_MANY_REQUESTS] * 2
    assert bookie.reads_in_flight == 0


@pytest.mark.expect_error("read failed")
async def test_a_read_that_fails_fails_alone_among_those_that_travel_with_it(bookie: Bookie, client: Client) -> None:
    await client.add(7, 0, 3 * SHARE)
    await bookie.checkpoint()
    file = bookie.world.disk.open("/data/ledgers/current/0.log")
    file.pwrite(b"\xff" * 20, 1024 + 4)
    asked = [*range(0, 3 * SHARE, 2), 1000, -1]
    client.send(b"".join(v2.read_request(7, entry_id) for entry_id in asked))
    answers = await client.take(len(asked))
    found: dict[int, tuple[int, bytes]] = {}
    for answer in answers:
        assert isinstance(answer, v2.ReadResponse)
        found[answer.entry_id] = (answer.rc, bytes(answer.entry))
    assert found.pop(0) == (Rc.IO, b"")
    assert found.pop(1000) == (Rc.NO_ENTRY, b"")
    assert found.pop(-1) == (Rc.OK, entry(7, 3 * SHARE - 1))
    assert found == {i: (Rc.OK, entry(7, i)) for i in range(2, 3 * SHARE, 2)}
    assert bookie.reads_in_flight == 0
