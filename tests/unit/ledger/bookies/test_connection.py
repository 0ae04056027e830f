"""A real bookie gives the same answers by either version of the protocol: callers see no difference."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from bookie.sessions.session import BookieSession
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link_local import LocalLink
from quire.ledger.bookies.pool import AddChannel, Answer, BookieClient, WireProtocol
from quire.ledger.errors import BookieUnavailableError
from quire.ledger.striping import Striping
from quire.ledger.writing.pending_runs import Sealer
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.availability import Availability
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key, read_header
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.bookie.build import CONFIG, with_bookie

LEDGER = 7
DIGEST = Digest(DigestType.CRC32C)
KEY = master_key(b"")
PAYLOADS = [b"a", b"b" * 3, b"c" * 3, b"d" * 40_000, b"e" * 7]
WAIT_S = 20


class Receiver:
    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.news = trio.Event()

    def adds_answered(self, channel: AddChannel, rc: int, first: int, last: int) -> None:
        self.codes.update(dict.fromkeys(range(first, last + 1), rc))
        self.news.set()

    def bookie_lost(self, channel: AddChannel, error: BookieUnavailableError) -> None:
        raise AssertionError(error)

    async def codes_of(self, count: int) -> list[int]:
        with trio.fail_after(WAIT_S):
            while len(self.codes) < count:
                self.news = trio.Event()
                await self.news.wait()
        return [self.codes[entry_id] for entry_id in sorted(self.codes)]


async def conversation(protocol: WireProtocol, write_flags: int = 0) -> list[Any]:
    """Send every kind of request, in an order that determines each answer; return the answers."""
    said: list[Any] = []
    async with with_bookie(config=CONFIG) as bookie, trio.open_nursery() as nursery:
        wheel = DeadlineWheel(1.0)
        nursery.start_soon(wheel.run)
        client = BookieClient(lambda _: LocalLink(partial(BookieSession, bookie)), wheel, WAIT_S, protocol=protocol)
        with trio.fail_after(WAIT_S):
            said.extend(await everything(client, write_flags))
        client.close()
        nursery.cancel_scope.cancel()
    return said


async def everything(client: BookieClient, write_flags: int) -> list[Any]:
    said: list[Any] = []

    async def hear(*answers: Answer) -> None:
        for answer in answers:
            outcome = await answer.wait()
            if isinstance(outcome, v2.ReadResponse):
                said.append((outcome.rc, outcome.entry_id, bytes(outcome.entry)))
            else:
                said.append(outcome)

    receiver = Receiver()
    channel = client.channel("bookie:1", LEDGER, receiver, 0, write_flags)
    sealer = Sealer(LEDGER, DIGEST, KEY, Striping(1, 1))
    channel.send(sealer.seal(0, -1, 0, PAYLOADS).frames, len(PAYLOADS))
    said.append(await receiver.codes_of(len(PAYLOADS)))
    connection = client.connection("bookie:1")
    await hear(connection.force(LEDGER))
    await hear(*connection.read(LEDGER, [0, 3, -1, 99]), *connection.read(4242, [0]))
    await hear(connection.read_lac(LEDGER))
    await hear(connection.write_lac(LEDGER, 2, KEY, DIGEST.seal_lac(LEDGER, 2)))
    await hear(connection.read_lac(LEDGER))
    poll = await connection.long_poll(LEDGER, 1, 10_000).wait()
    assert isinstance(poll, v2.ReadResponse)
    assert poll.max_lac == 2
    said.append(bytes(poll.entry))
    await hear(connection.list_of_entries(LEDGER), connection.start_tls(), connection.authenticate("x", b""))
    await hear(*connection.read(LEDGER, [-1], v2.DO_FENCING, KEY))
    channel.send(sealer.seal(5, 2, 100, [b"late"]).frames, 1)
    said.append((await receiver.codes_of(6))[-1])
    return said


@pytest.mark.seeded
async def test_either_version_is_answered_the_same() -> None:
    said = await conversation("v2")
    assert said[0] == [Rc.OK] * 5
    assert said[-1] == Rc.FENCED
    assert Availability.of(range(5)).encode() == next(
        each.availability for each in said if isinstance(each, v3.EntryList)
    )
    rc, entry_id, entry = said[3]
    assert (rc, entry_id, read_header(entry).entry_id) == (Rc.OK, 3, 3)
    assert bytes(DIGEST.open(LEDGER, 3, memoryview(entry))) == PAYLOADS[3], "the entry that was sent"
    assert await conversation("v3") == said


@pytest.mark.seeded
@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_adds_of_deferred_sync_are_answered_too(protocol: WireProtocol) -> None:
    said = await conversation(protocol, v3.DEFERRED_SYNC)
    assert said[:2] == [[Rc.OK] * 5, v3.Done(Rc.OK, LEDGER)]
