"""Ids at the ends of their ranges: refused at the edge, in both versions, and harmless where an older bookie stored
them.
"""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie
from bookie.journal.format import Fence
from bookie.sessions.session import BookieSession
from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import DO_FENCING, ID_MAX, Rc
from tests.support.waiting import until
from tests.unit.bookie.build import CONFIG, KEY, Client, add_frame, add_frames, entry, run_of
from tests.unit.bookie.machine import Machine

END = (1 << 63) - 1
TOO_HIGH = [(END, 0), (0, END), (END, END), (END, ID_MAX)]
EDGES = (END, ID_MAX, ID_MAX - 1, 1 << 62, 0)


def ask_version_3(bookie: Bookie, frame: bytes) -> list[pb.Response]:
    """Send a frame, and return the answers of the same pass."""
    answers: list[pb.Response] = []

    def write(parts: list[Buffer]) -> None:
        chunk = b"".join(parts)
        while chunk:
            length = int.from_bytes(chunk[:4], "big")
            answers.append(pb.Response.FromString(chunk[4 : 4 + length]))
            chunk = chunk[4 + length :]

    BookieSession(bookie, write).receive([frame])
    return answers


@pytest.mark.parametrize(("ledger_id", "entry_id"), TOO_HIGH)
async def test_an_add_above_the_highest_id_is_a_bad_request(ledger_id: int, entry_id: int, bookie: Bookie) -> None:
    answers = await Client(bookie).ask(add_frame(ledger_id, entry_id))
    assert answers == [v2.OtherResponse(v2.Opcode.ADD, Rc.BAD_REQUEST, ledger_id, entry_id)] or answers == [
        v2.AddAcks(Rc.BAD_REQUEST, ledger_id, entry_id, entry_id)
    ]
    (frame,) = v3.add_requests(1, ledger_id, [entry_id], KEY, [entry(ledger_id, entry_id)])
    assert isinstance(frame, bytes)
    (answer,) = ask_version_3(bookie, frame)
    assert (answer.status, answer.header.operation) == (pb.EBADREQ, pb.ADD_ENTRY)
    assert bookie.storage.ledgers() == []


@pytest.mark.parametrize("size", [10, 200_000], ids=["small", "big"])
async def test_of_a_run_up_to_the_end_of_the_range_all_but_the_last_entry_are_taken(size, bookie, client):
    payload = b"x" * size
    client.send(add_frames(7, END - 3, 4, payload))
    await until(lambda: sum(each.last - each.first + 1 for each in client.answers if type(each) is v2.AddAcks) == 4)
    acks = {(each.rc, each.first, each.last) for each in client.answers if isinstance(each, v2.AddAcks)}
    assert acks == {(Rc.OK, END - 3, END - 1), (Rc.BAD_REQUEST, END, END)}
    client.answers.clear()
    for _ in range(2):
        await client.holds(7, range(END - 3, END), payload)
        assert (await client.read(7, END)).rc == Rc.NO_ENTRY
        await bookie.checkpoint()


async def test_a_ledger_above_the_highest_id_is_not_fenced_and_has_no_explicit_lac(bookie: Bookie, client: Client):
    (answer,) = await client.ask(v2.read_request(END, -1, DO_FENCING, KEY))
    assert isinstance(answer, v2.ReadResponse)
    assert answer.rc == Rc.BAD_REQUEST
    package = pack("!qq", END, 3) + b"digest"
    for frame in (
        v3.read_request(1, END, -1, DO_FENCING, KEY),
        v3.write_lac_request(2, END, 3, KEY, package),
    ):
        (refused,) = ask_version_3(bookie, frame)
        assert refused.status == pb.EBADREQ
    assert bookie.storage.ledgers() == []


@pytest.mark.parametrize("ledger_id", [-1, -END, END])
async def test_a_batch_read_fences_no_ledger_that_cannot_be(ledger_id: int, bookie: Bookie, client: Client) -> None:
    """Such a fence would end every later flush, and the start of a bookie that replays it."""
    body = pack("!Iqqqiq", v2.header(v2.Opcode.BATCH_READ, DO_FENCING), ledger_id, 0, 1, 10, 1 << 20) + KEY
    (answer,) = await client.ask(pack("!i", len(body)) + body)
    assert isinstance(answer, v2.OtherResponse | v2.BatchResponse)
    assert answer.rc == Rc.BAD_REQUEST
    assert bookie.storage.ledgers() == []
    await bookie.checkpoint()


async def test_what_an_older_bookie_stored_at_the_end_of_the_range_is_collected_and_kills_nothing(machine: Machine):
    async with machine.life() as (bookie, _):
        for ledger_id, entry_id in ((END, 0), (END, END), (7, END), (8, 0)):
            bookie.storage.set_master_key(ledger_id, KEY)
            bookie.storage.add(run_of(ledger_id, entry_id, 1))
        await bookie.storage.flush()
    async with machine.life() as (bookie, client):
        assert bytes((await client.read(7, END)).entry) == entry(7, END)
        assert (await client.read(7, -1)).rc == Rc.OK
        await trio.sleep(2.5 * CONFIG.gc_wait_ms / 1000)
        assert bookie.storage.ledgers() == []
        assert bookie.storage.of(0)._locations.ledgers() == []
        assert bookie.world.disk.names("/data/ledgers/current").count("0.log") == 0, "its log goes too"
        assert not bookie.job_failures.counts


async def test_a_journal_with_fences_of_negative_ids_by_an_older_bookie_is_replayed_without_them(
    machine: Machine, log_events: list[dict[str, Any]]
) -> None:
    """An older bookie stored such a fence for a BATCH_READ, and did not start again."""
    written: list[object] = []
    async with machine.life(crash=True, lose_unsynced=False) as (bookie, client):
        client.send(add_frames(7, 0, 3))
        for ledger_id in (-7, -END - 1):
            bookie.journal.of(0).append(Fence(ledger_id), written.append, KEY)
        await client.ask(v2.read_request(8, -1, DO_FENCING, KEY))
        await until(lambda: len(written) == 2)
        assert written == [None, None]
    for _ in range(2):
        async with machine.life() as (bookie, client):
            await client.holds(7, range(3))
            assert bookie.storage.is_fenced(8)
            assert bookie.storage.ledgers() == [7, 8]
            await bookie.checkpoint()
    warnings = [each for each in log_events if each["event"] == "journal records of impossible ledgers left out"]
    assert [each["records"] for each in warnings] == [4], "two keys and two fences, in one warning"


@pytest.mark.bookie(long_polls_max=100)
async def test_no_id_in_any_request_raises(bookie: Bookie) -> None:
    for ledger_id in (*EDGES, -1, -END):
        for entry_id in (*EDGES, -1, -2, -END):
            client = Client(bookie)
            client.send(add_frame(ledger_id, entry_id))
            client.send(v2.read_request(ledger_id, entry_id))
            client.send(v2.batch_read_request(ledger_id, entry_id, 1, 10, 1 << 20))
            await client.ask(v2.read_request(ledger_id, entry_id, DO_FENCING, KEY))
            if ledger_id >= 0:
                ask_version_3(bookie, v3.read_request(1, ledger_id, entry_id, previous_lac=END, timeout_ms=1))
                ask_version_3(bookie, v3.list_of_entries_request(1, ledger_id))
                ask_version_3(bookie, v3.read_lac_request(1, ledger_id))
    await trio.sleep(3 * CONFIG.gc_wait_ms / 1000)
    assert bookie.storage.ledgers() == []
    assert not bookie.job_failures.counts
