from __future__ import annotations

import pytest
import trio

from quire.ledger.bookies.answers import Answer
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.pool import BookieClient, V2Connection, WireProtocol
from quire.ledger.errors import BookieProtocolError, BookieTimeoutError, BookieUnavailableError
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.v2 import Opcode, Rc
from tests.support.refusals import raises, refuses
from tests.unit.ledger.bookies.scripted import Receiver, ScriptedLink

KEY = b"k" * 20
DIGEST = Digest(DigestType.CRC32C)
ADD = v2.add_head(36 + 7, KEY) + DIGEST.seal(8, 4, 3, 7, b"payload") + b"payload"


def found(entry_id: int, entry: bytes) -> bytes:
    return v2.response_head(Opcode.READ, Rc.OK, 7, entry_id, len(entry)) + entry


@pytest.fixture
async def connection(link: ScriptedLink, wheel: DeadlineWheel) -> V2Connection:
    return V2Connection("bookie:1", link, wheel, 10.0)


async def entry_of(answer: Answer) -> bytes:
    body = await answer.wait()
    assert isinstance(body, v2.ReadResponse)
    return bytes(body.entry)


async def test_answers_reach_who_asked_in_whatever_order_they_come(connection: V2Connection, link: ScriptedLink):
    one, two = connection.read(7, [1, 2])
    batch = connection.read_batch(7, 1, 10, 1000)
    other = connection.read_batch(7, 1, 10, 1000)
    assert len(link.sent[0]) == 2 * 24, "reads of one call leave in one buffer"
    link.answer(
        v2.batch_response_head(Rc.OK, 7, 1, 1, 5) + b"\0\0\0\1b",
        found(2, b"two"),
        v2.batch_response_head(Rc.NO_ENTRY, 7, 1, 0),
        found(1, b"one"),
    )
    assert await entry_of(one) == b"one"
    assert await entry_of(two) == b"two"
    assert (await batch.wait()).rc == Rc.NO_ENTRY
    assert (await other.wait()).rc == Rc.OK


async def test_two_reads_of_one_entry_are_never_under_way_at_once(connection: V2Connection, link: ScriptedLink) -> None:
    """A fencing read must not be answered with the result of an ordinary read."""
    [plain] = connection.read(7, [-1])
    [fencing] = connection.read(7, [-1], v2.DO_FENCING, KEY)
    [third] = connection.read(7, [-1])
    assert [each.flags for each in link.requests() if isinstance(each, v2.ReadRequest)] == [0]
    link.answer(found(-1, b"first"))
    assert (plain.outcome is not None, fencing.outcome, third.outcome) == (True, None, None)
    assert [each.flags for each in link.requests() if isinstance(each, v2.ReadRequest)] == [v2.DO_FENCING]
    link.answer(found(-1, b"second"))
    assert await entry_of(fencing) == b"second"
    link.answer(found(-1, b"third"))
    assert await entry_of(third) == b"third"


async def test_a_late_answer_is_not_taken_for_the_answer_to_a_later_question(connection, link):
    [early] = connection.read(7, [3])
    await trio.sleep(12.5)
    await raises(BookieTimeoutError, early.wait())
    [late] = connection.read(7, [3], v2.DO_FENCING, KEY)
    assert late.outcome is None
    link.answer(found(3, b"for the early one"))
    assert late.outcome is None
    link.answer(found(3, b"for the late one"))
    assert await entry_of(late) == b"for the late one"


async def test_a_read_that_waited_for_its_turn_times_out_as_soon_as_any_other(connection, link):
    connection.read(7, [3])
    [second] = connection.read(7, [3])
    await trio.sleep(5)
    [younger] = connection.read(7, [4])
    link.answer(found(3, b"for the first one"))
    await trio.sleep(7.5)
    assert isinstance(second.outcome, BookieTimeoutError)
    assert younger.outcome is None


async def test_reads_time_out_and_a_link_that_owes_an_answer_for_too_long_is_given_up(connection, link, receiver):
    connection.open_channel(5, receiver, 0)
    began = trio.current_time()
    answers = [*connection.read(7, [1, 1]), connection.read_batch(7, 1, 1, 1)]
    for answer in answers:
        await raises(BookieTimeoutError, answer.wait())
    assert 10 <= trio.current_time() - began <= 13
    assert link.is_open
    await trio.sleep(40)
    assert not link.is_open
    assert len(receiver.lost) == 1
    [after] = connection.read(7, [1])
    await raises(BookieUnavailableError, after.wait())


async def test_an_answered_link_is_not_watched_any_more(connection: V2Connection, link: ScriptedLink) -> None:
    connection.read(7, [1])
    await trio.sleep(5)
    link.answer(found(1, b""))
    assert connection.tick(10**6) is False
    assert link.is_open


async def test_a_broken_link_fails_everybody_who_waits_once(connection, link, receiver):
    channel = connection.open_channel(5, receiver, 0)
    channel.send([b"frame"], 1)
    answers = [*connection.read(7, [1, 1]), connection.read_batch(7, 1, 1, 1)]
    error = BookieUnavailableError("gone")
    link.closed(error)
    link.closed(BookieUnavailableError("again"))
    assert receiver.lost == [error]
    assert [each.outcome for each in answers] == [error] * 3
    link.sent.clear()
    channel.send([b"frame"], 1)
    assert link.sent == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(v2.response_head(Opcode.GET_BOOKIE_INFO, Rc.OK, 0, 0), id="never asked"),
        pytest.param(b"\0\0\0\1 no response", id="no response"),
    ],
)
async def test_what_cannot_be_an_answer_costs_the_bookie_its_link(answer, connection, link, receiver):
    connection.open_channel(5, receiver, 0)
    link.answer(answer)
    assert not link.is_open
    assert isinstance(receiver.lost[0], BookieProtocolError)
    assert receiver.lost[0] is connection.broken


async def test_answers_to_nobodys_requests_are_passed_over(connection: V2Connection, link: ScriptedLink) -> None:
    link.answer(v2.add_responses(Rc.OK, 99, range(3)), found(1, b"x"), v2.batch_response_head(Rc.NO_ENTRY, 7, 1, 12345))
    assert link.is_open
    assert connection.broken is None


async def test_a_batch_refused_without_its_id_is_refused_all_the_same(connection: V2Connection, link: ScriptedLink):
    batch = connection.read_batch(7, 1, 10, 1000)
    link.answer(v2.response_head(Opcode.BATCH_READ, Rc.BAD_REQUEST, -1, -1))
    assert isinstance(await batch.wait(), v2.OtherResponse)


# --- both versions


class Links:
    """The links of one client, in order of creation."""

    def __init__(self) -> None:
        self.made: list[ScriptedLink] = []
        self.fails = False

    def connect(self, bookie_id: str) -> ScriptedLink:
        if self.fails:
            raise BookieUnavailableError("down")
        self.made.append(ScriptedLink())
        return self.made[-1]

    def client(self, protocol: WireProtocol = "v2") -> BookieClient:
        return BookieClient(self.connect, DeadlineWheel(1.0), 10.0, protocol=protocol)


@pytest.fixture
def links() -> Links:
    return Links()


async def test_what_version_2_cannot_say_goes_by_a_second_connection_of_version_3(links: Links) -> None:
    client = links.client()
    connection = client.connection("bookie:1")
    connection.read(7, [1])
    lac, force = connection.read_lac(7), connection.force(7)
    connection.bookie_info(3)
    assert len(links.made) == 2, "one second connection for all"
    assert isinstance(links.made[0].requests()[0], v2.ReadRequest)
    asked = [request for frame in links.made[1].sent for request in v3.decode_requests(frame)]
    assert asked == [v3.ReadLacRequest(1, 7), v3.ForceRequest(2, 7), v3.BookieInfoRequest(3, 3)]
    links.made[1].answer(v3.force_response(2, Rc.OK, 7), v3.read_lac_response(1, Rc.OK, 7, None, b"last"))
    assert await force.wait() == v3.Done(Rc.OK, 7)
    assert await lac.wait() == v3.LacAnswer(Rc.OK, 7, None, memoryview(b"last"))
    assert client.connection("bookie:1") is connection


async def test_without_a_second_connection_the_answer_says_so(links: Links) -> None:
    connection = links.client().connection("bookie:1")
    links.fails = True
    for answer in (connection.read_lac(7), connection.long_poll(7, 1, 100), connection.list_of_entries(7)):
        await raises(BookieUnavailableError, answer.wait())
    assert connection.broken is None


async def test_a_broken_second_connection_is_made_anew_and_the_first_lives_on(links: Links) -> None:
    connection = links.client().connection("bookie:1")
    lost = connection.force(7)
    links.made[1].closed(BookieUnavailableError("gone"))
    await raises(BookieUnavailableError, lost.wait())
    connection.force(7)
    assert (connection.broken, len(links.made)) == (None, 3)


async def test_deferred_sync_takes_a_channel_of_version_3(receiver: Receiver, links: Links) -> None:
    client = links.client()
    client.channel("bookie:1", 7, Receiver(), 0)
    client.channel("bookie:1", 8, receiver, 0, write_flags=v3.DEFERRED_SYNC).send([ADD], 1)
    [frame] = links.made[1].sent
    request = v3.decode_request(frame)
    assert isinstance(request, v3.AddRequest)
    assert (request.write_flags, request.run.key) == (v3.DEFERRED_SYNC, KEY)
    links.made[1].answer(v3.add_responses(Rc.OK, 8, [4], request.txns))
    assert receiver.answers == [(Rc.OK, 4, 4)]


async def test_a_client_of_version_3_speaks_nothing_else(links: Links) -> None:
    client = links.client("v3")
    connection = client.connection("bookie:1")
    connection.read(7, [1])
    connection.read_lac(7)
    client.channel("bookie:1", 8, Receiver(), 0).send([ADD], 1)
    assert len(links.made) == 1
    assert all(v3.is_version_3(frame) for frame in links.made[0].sent)
    assert not connection.supports_batch
    client.close()
    assert not links.made[0].is_open
    refuses(BookieUnavailableError, lambda: client.connection("bookie:1"))


async def test_a_second_writer_of_a_ledger_gets_a_link_of_its_own_until_the_first_has_all_its_answers(links: Links):
    client = links.client()
    first, second, third = Receiver(), Receiver(), Receiver()
    channel = client.channel("bookie:1", 7, first, 0)
    client.channel("bookie:1", 8, second, 0)
    assert len(links.made) == 1, "other ledgers share the link"
    channel.send([b"frame"], 3)
    channel.release()
    client.channel("bookie:1", 7, second, 0).send([b"frame"], 3)
    assert len(links.made) == 2
    links.made[0].answer(v2.add_responses(Rc.FENCED, 7, range(3)))
    assert (first.answers, second.answers) == ([], [])
    links.made[1].answer(v2.add_responses(Rc.OK, 7, range(3)))
    assert second.answers == [(Rc.OK, 0, 2)]
    client.channel("bookie:1", 7, third, 0)
    assert len(links.made) == 2, "the first link is free for the ledger again"
