"""A connection that uses version 3."""

from __future__ import annotations

import pytest
import trio

from quire.ledger.bookies.connection_v3 import add_messages
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.pool import V3Connection
from quire.ledger.context import LedgerConfig
from quire.ledger.errors import BookieProtocolError, BookieTimeoutError, BookieUnavailableError
from quire.ledger.striping import Striping
from quire.ledger.writing.pending_runs import Sealer
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Buffer, Digest, DigestType
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.bookkeeper.varints import encode
from tests.support.refusals import raises
from tests.unit.ledger.bookies.scripted import ScriptedLink

KEY = b"k" * 20
DIGEST = Digest(DigestType.CRC32C)


@pytest.fixture
async def connection(link: ScriptedLink, wheel: DeadlineWheel) -> V3Connection:
    return V3Connection("bookie:1", link, wheel, 10.0)


def requests(link: ScriptedLink) -> list[v3.Request]:
    requests = [request for frame in link.sent for request in v3.decode_requests(frame)]
    link.sent.clear()
    return requests


def found(txn_id: int, entry_id: int, entry: Buffer, **more: int) -> bytes:
    return b"".join(v3.read_response(txn_id, Rc.OK, 7, entry_id, entry, **more))


def sealed(payloads: list[bytes], striping: Striping, flags: int = 0, digest: Digest = DIGEST) -> list[v2.Frame]:
    return Sealer(7, digest, KEY, striping, flags=flags).seal(3, 1, 100, payloads).frames


def entries_of(run: Run) -> list[bytes]:
    return [bytes(entry) for entry in v2.split_entries(memoryview(b"".join(run.parts)))]


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_sealed_runs_become_messages_with_the_same_entries(digest_type: DigestType) -> None:
    payloads = [bytes([size % 251]) * size for size in (0, 7, 7, 1000, v2.JOIN_MAX + 1, 3, 100_000)]
    frames = sealed(payloads, Striping(3, 3), v2.RECOVERY_ADD | v2.HIGH_PRIORITY, Digest(digest_type, b"password"))
    messages, count = add_messages(frames, 126, 0)
    assert count == len(payloads)
    of_v2 = [run for frame in frames for run in v2.decode_requests(frame) if isinstance(run, Run)]
    adds = [each for frame in messages for each in v3.decode_requests(frame) if isinstance(each, v3.AddRequest)]
    of_v3 = [each.run for each in adds]
    assert [entry for run in of_v3 for entry in entries_of(run)] == [
        entry for run in of_v2 for entry in entries_of(run)
    ]
    assert {(run.ledger_id, run.key, run.flags) for run in of_v3} == {(7, KEY, v2.RECOVERY_ADD | v2.HIGH_PRIORITY)}
    assert [txn for each in adds for txn in each.txns] == [encode(126 + i) for i in range(count)]


def test_entries_with_gaps_between_their_ids_keep_them() -> None:
    frames = sealed([b"a", b"bb", b"ccc", b"dddd"], Striping(5, 2))
    for chosen in ([0, 2, 3], [2, 1, 3], [0, 2, 1, 3], [1]):
        [frame], _ = add_messages([frames[i] for i in chosen], 1, 0)
        runs = [each.run for each in v3.decode_requests(frame) if isinstance(each, v3.AddRequest)]
        ids = [run.first + i for run in runs for i in range(len(run.offsets))]
        assert ids == [3 + i for i in chosen]


async def test_adds_are_answered_by_run_to_their_channel(connection, link, receiver):
    channel = connection.open_channel(7, receiver, 0)
    connection.read(7, [1])
    channel.send(sealed([b"payload"] * 4, Striping(3, 3)), 4)
    read, adds = requests(link)
    assert isinstance(adds, v3.AddRequest)
    assert isinstance(read, v3.ReadRequest)
    assert (read.txn_id, adds.txns) == (1, [encode(i) for i in (2, 3, 4, 5)])
    connection.force(7)
    assert requests(link) == [v3.ForceRequest(6, 7)]
    link.answer(
        v3.add_responses(Rc.OK, 7, range(3, 5), adds.txns[:2]),
        v3.add_responses(Rc.FENCED, 7, range(5, 7), adds.txns[2:]),
        v3.add_responses(Rc.OK, 99, range(3), adds.txns[:3]),
    )
    assert receiver.answers == [(Rc.OK, 3, 4), (Rc.FENCED, 5, 6)]
    assert channel.outstanding == 0
    channel.release()
    assert connection.channels == {}


async def test_answers_find_their_requests_in_any_order(connection: V3Connection, link: ScriptedLink) -> None:
    one, again, last = connection.read(7, [1, 1, -1], v2.DO_FENCING | v2.HIGH_PRIORITY, KEY)
    lac = connection.read_lac(7)
    written = connection.write_lac(7, 5, KEY, b"package")
    info = connection.bookie_info(v3.TOTAL_DISK_CAPACITY | v3.FREE_DISK_SPACE)
    forced = connection.force(7)
    listed = connection.list_of_entries(7)
    tls = connection.start_tls()
    auth = connection.authenticate("plugin", b"credentials")
    flags = v2.DO_FENCING | v2.HIGH_PRIORITY
    assert requests(link) == [
        v3.ReadRequest(1, 7, 1, flags, KEY),
        v3.ReadRequest(2, 7, 1, flags, KEY),
        v3.ReadRequest(3, 7, -1, flags, KEY),
        v3.ReadLacRequest(4, 7),
        v3.WriteLacRequest(5, 7, 5, KEY, b"package"),
        v3.BookieInfoRequest(6, 3),
        v3.ForceRequest(7, 7),
        v3.ListOfEntriesRequest(8, 7),
        v3.StartTlsRequest(9),
        v3.AuthRequest(10, "plugin", b"credentials"),
    ]
    link.answer(
        v3.auth_response(10, Rc.OK, "AuthDisabledPlugin", b""),
        v3.start_tls_response(9, Rc.BAD_REQUEST),
        v3.list_of_entries_response(8, Rc.OK, 7, b"availability"),
        v3.force_response(7, Rc.OK, 7),
        v3.bookie_info_response(6, Rc.OK, 1000, None),
        v3.write_lac_response(5, Rc.READ_ONLY, 7),
        v3.read_lac_response(4, Rc.OK, 7, b"package", None),
        found(3, -1, b"last"),
        *v3.read_response(2, Rc.NO_ENTRY, 7, 1),
        found(1, 1, b"one", max_lac=9),
    )
    assert one.outcome == v2.ReadResponse(Rc.OK, 7, 1, memoryview(b"one"), 9)
    assert again.outcome == v2.ReadResponse(Rc.NO_ENTRY, 7, 1, memoryview(b""))
    assert last.outcome == v2.ReadResponse(Rc.OK, 7, -1, memoryview(b"last"))
    assert lac.outcome == v3.LacAnswer(Rc.OK, 7, b"package", None)
    assert written.outcome == v3.Done(Rc.READ_ONLY, 7)
    assert info.outcome == v3.BookieInfo(Rc.OK, 1000, None)
    assert forced.outcome == v3.Done(Rc.OK, 7)
    assert listed.outcome == v3.EntryList(Rc.OK, 7, b"availability")
    assert tls.outcome == v2.OtherResponse(v3.Operation.START_TLS, Rc.BAD_REQUEST, -1, -1)
    assert auth.outcome == v3.AuthAnswer(Rc.OK, "AuthDisabledPlugin", b"")
    assert connection.tick(10**6) is False


async def test_a_long_poll_is_given_its_own_time_and_costs_no_link(connection: V3Connection, link: ScriptedLink):
    began = trio.current_time()
    poll = connection.long_poll(7, 4, 60_000)
    silent = connection.list_of_entries(7)
    assert requests(link)[0] == v3.ReadRequest(1, 7, -1, 0, None, previous_lac=4, timeout_ms=60_000, piggyback=True)
    await raises(BookieTimeoutError, silent.wait())
    assert 10 <= trio.current_time() - began <= 13
    await raises(BookieTimeoutError, poll.wait())
    assert 70 <= trio.current_time() - began <= 75
    assert link.is_open
    assert connection.tick(10**6) is False
    answered = connection.long_poll(7, 4, 1000, piggyback=False)
    link.answer(found(3, -1, b"", max_lac=6, lac_update_ms=1234))
    assert answered.outcome == v2.ReadResponse(Rc.OK, 7, -1, memoryview(b""), 6, 1234)


async def test_reads_time_out_and_a_link_that_owes_an_answer_for_too_long_is_given_up(connection, link, receiver):
    connection.open_channel(5, receiver, 0)
    began = trio.current_time()
    late, never = connection.read(7, [1, 2])
    for answer in (late, never):
        await raises(BookieTimeoutError, answer.wait())
    assert 10 <= trio.current_time() - began <= 13
    link.answer(found(1, 1, b"late"))
    assert isinstance(late.outcome, BookieTimeoutError)
    assert link.is_open
    await trio.sleep(40)
    assert not link.is_open
    assert len(receiver.lost) == 1
    for after in (*connection.read(7, [1]), connection.force(7), connection.list_of_entries(7)):
        await raises(BookieUnavailableError, after.wait())


async def test_a_broken_link_fails_everybody_who_waits_once(connection, link, receiver):
    channel = connection.open_channel(7, receiver, 0)
    answers = [*connection.read(7, [1, 1]), connection.read_lac(7), connection.long_poll(7, 1, 100)]
    error = BookieUnavailableError("gone")
    link.closed(error)
    link.closed(BookieUnavailableError("again"))
    assert receiver.lost == [error]
    assert [each.outcome for each in answers] == [error] * 4
    link.sent.clear()
    channel.send(sealed([b"x"], Striping(1, 1)), 1)
    assert link.sent == []


@pytest.mark.parametrize(
    "answer",
    [
        v3.refusal(v3.Operation.ADD_ENTRY, 1, Rc.UNAUTHORIZED),
        v3.force_response(12345, Rc.OK, 7),
        b"\0\0\0\5\x0a\xff\0\0\0",
        b"\0\0\0\x18\2\1\0\0" + bytes(20),
    ],
    ids=["an add refused without its id", "never asked", "no message", "version 2"],
)
async def test_what_cannot_be_understood_costs_the_bookie_its_link(answer, connection, link, receiver):
    channel = connection.open_channel(7, receiver, 0)
    channel.send(sealed([b"x"], Striping(1, 1)), 1)
    link.answer(answer)
    assert not link.is_open
    assert isinstance(receiver.lost[0], BookieProtocolError)


async def test_a_batch_is_refused_without_asking(connection: V3Connection, link: ScriptedLink) -> None:
    assert (await connection.read_batch(7, 1, 10, 1000).wait()).rc == Rc.BAD_REQUEST
    assert link.sent == []


@pytest.mark.parametrize("write_flags", [0, v3.DEFERRED_SYNC])
@pytest.mark.parametrize("flags", [0, v2.RECOVERY_ADD | v2.HIGH_PRIORITY])
def test_the_largest_entry_fits_a_frame_of_version_3_too(flags: int, write_flags: int) -> None:
    config = LedgerConfig(protocol="v3")
    frame_max = config.frame_max_of(deferred_sync=bool(write_flags))
    digest = Digest(DigestType.CRC32C)
    the_sealer = Sealer(v2.ID_MAX, digest, KEY, Striping(1, 1), flags=flags, frame_max=frame_max)
    frames = the_sealer.seal(v2.ID_MAX, 1, 100, [bytes(the_sealer.payload_max)]).frames
    messages, _ = add_messages(frames, (1 << 63) - 1, write_flags)
    size = sum(len(part) for message in messages for part in (message if isinstance(message, tuple) else (message,)))
    assert config.frame_max - v3.ADD_EXTRA < size - 4 <= config.frame_max
    assert LedgerConfig().frame_max_of(deferred_sync=True) == frame_max
