"""The protocol of BookKeeper's bookie in frames made by hand, against a bookie on a (simulated) port.

Each test quotes the rule that it checks: "..." is from BookKeeper's BookkeeperProtocol.proto, from its processors of
requests, or from observed answers of a running 4.17.3.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from struct import pack, unpack_from
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.server import serve_bookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.world.doors import Stream, World
from simulation.machines.world import in_world
from tests.support.waiting import until
from tests.unit.bookie.build import CONFIG, KEY, OTHER_KEY, entry, opened

pytestmark = pytest.mark.seeded

EOK, ENOLEDGER, ENOENTRY, EBADREQ, EIO, EUA = 0, 402, 403, 404, 501, 502
EBADVERSION, EFENCED, EREADONLY, ETOOMANYREQUESTS = 503, 504, 505, 506
PATIENCE_S = 60.0


class Peer:
    """A client's end of a connection."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._received = b""
        self._txn = 0

    async def send(self, body: bytes) -> None:
        await self.send_bytes(pack("!i", len(body)) + body)

    async def send_bytes(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.send_nowait([rest]) :]
            if rest:
                await self._stream.wait_writable()

    async def frame(self) -> bytes | None:
        """Return the body of the next frame, None at the end of the connection."""
        buffer = bytearray(1 << 16)
        with trio.fail_after(PATIENCE_S):
            while len(self._received) < 4 or len(self._received) < 4 + unpack_from("!i", self._received)[0]:
                try:
                    size = await self._stream.receive_into(memoryview(buffer))
                except OSError:
                    size = 0
                if not size:
                    return None
                self._received += buffer[:size]
        end = 4 + unpack_from("!i", self._received)[0]
        body, self._received = self._received[4:end], self._received[end:]
        return body

    async def answers_within(self, seconds: float) -> bytes | None:
        """Return the next frame, or None if none arrives in that time."""
        with trio.move_on_after(seconds):
            return await self.frame()
        return None

    # --- version 2

    async def ask2(self, body: bytes) -> tuple[Any, ...]:
        """Send a request; return (version, opcode, flags, rc, ledger id, entry id, the rest) of the answer."""
        await self.send(body)
        return await self.answer2()

    async def answer2(self) -> tuple[Any, ...]:
        body = await self.frame()
        assert body is not None, "the bookie closed the connection"
        return (*unpack_from("!BBHiqq", body), body[24:])

    async def add2(self, ledger_id: int, entry_id: int, *, key: bytes = KEY, flags: int = 0) -> int:
        rc: int = (await self.ask2(head2(1, flags) + key + entry(ledger_id, entry_id)))[3]
        return rc

    async def read2(self, ledger_id: int, entry_id: int, *, flags: int = 0, key: bytes = b"") -> tuple[int, bytes]:
        found: Any = await self.ask2(head2(2, flags) + pack("!qq", ledger_id, entry_id) + key)
        return found[3], found[6]

    # --- version 3

    def request(self, operation: int, *, version: int = 3, priority: int = 0) -> pb.Request:
        self._txn += 1
        request = pb.Request()
        header: Any = request.header  # also codes that the protocol does not have
        header.version, header.operation, header.txnId = version, operation, self._txn
        if priority:
            header.priority = priority
        return request

    async def ask3(self, request: pb.Request) -> pb.Response:
        await self.send(request.SerializeToString())
        answer = await self.answer3()
        assert answer.header.txnId == request.header.txnId
        assert answer.header.operation == request.header.operation
        assert answer.header.version == 3
        return answer

    async def answer3(self) -> pb.Response:
        body = await self.frame()
        assert body is not None, "the bookie closed the connection"
        return pb.Response.FromString(body)

    def add_request(
        self, ledger_id: int, entry_id: int, *, key: bytes = KEY, flag: int = 0, priority: int = 0, write_flags: int = 0
    ) -> pb.Request:
        request = self.request(pb.ADD_ENTRY, priority=priority)
        add: Any = request.addRequest
        add.ledgerId, add.entryId, add.masterKey, add.body = ledger_id, entry_id, key, entry(ledger_id, entry_id)
        if flag:
            add.flag = flag
        if write_flags:
            add.writeFlags = write_flags
        return request

    async def add3(self, ledger_id: int, entry_id: int, **more: Any) -> int:
        answer = await self.ask3(self.add_request(ledger_id, entry_id, **more))
        added = answer.addResponse
        assert (added.ledgerId, added.entryId) == (ledger_id, entry_id)
        assert answer.status == added.status, "both codes are the same"
        return answer.status

    def read_request(self, ledger_id: int, entry_id: int, **more: Any) -> pb.Request:
        request = self.request(pb.READ_ENTRY)
        read = request.readRequest
        read.ledgerId, read.entryId = ledger_id, entry_id
        for name, value in more.items():
            setattr(read, name, value)
        return request

    async def read3(self, ledger_id: int, entry_id: int, **more: Any) -> pb.ReadResponse:
        answer = await self.ask3(self.read_request(ledger_id, entry_id, **more))
        assert answer.status == answer.readResponse.status, "both codes are the same"
        return answer.readResponse

    async def fence3(self, ledger_id: int, key: bytes = KEY) -> pb.ReadResponse:
        return await self.read3(ledger_id, -1, masterKey=key, flag=pb.ReadRequest.FENCE_LEDGER)

    async def write_lac(self, ledger_id: int, lac: int, *, key: bytes = KEY) -> int:
        request = self.request(pb.WRITE_LAC)
        write = request.writeLacRequest
        write.ledgerId, write.lac, write.masterKey, write.body = ledger_id, lac, key, package(ledger_id, lac)
        answer = await self.ask3(request)
        assert answer.status == answer.writeLacResponse.status
        assert answer.writeLacResponse.ledgerId == ledger_id
        return answer.status

    async def read_lac(self, ledger_id: int) -> pb.ReadLacResponse:
        request = self.request(pb.READ_LAC)
        request.readLacRequest.ledgerId = ledger_id
        answer = await self.ask3(request)
        assert answer.status == answer.readLacResponse.status
        return answer.readLacResponse

    async def force(self, ledger_id: int) -> int:
        request = self.request(pb.FORCE_LEDGER)
        request.forceLedgerRequest.ledgerId = ledger_id
        return (await self.ask3(request)).status

    async def entries(self, ledger_id: int) -> pb.GetListOfEntriesOfLedgerResponse:
        request = self.request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER)
        request.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
        return (await self.ask3(request)).getListOfEntriesOfLedgerResponse

    async def info(self, requested: int) -> pb.GetBookieInfoResponse:
        request = self.request(pb.GET_BOOKIE_INFO)
        request.getBookieInfoRequest.requested = requested
        return (await self.ask3(request)).getBookieInfoResponse


def head2(opcode: int, flags: int = 0, version: int = 2) -> bytes:
    return pack("!BBH", version, opcode, flags)


def package(ledger_id: int, lac: int) -> bytes:
    return pack("!qqi", ledger_id, lac, 77)


Connect = Callable[[], Awaitable[Peer]]


@asynccontextmanager
async def serving(world: World, tree: MemoryTree, config: BookieConfig) -> AsyncIterator[tuple[Bookie, Connect]]:
    async with opened(world, tree, config) as bookie, trio.open_nursery() as nursery:
        stop = trio.Event()
        serve = partial(serve_bookie, world, bookie, MemoryStore(tree), bind_address="0.0.0.0", stop=stop)
        address = await nursery.start(serve, name="bookie")

        async def connect() -> Peer:
            return Peer(await world.network.connect("host", address[1]))

        yield bookie, connect
        stop.set()


@asynccontextmanager
async def converse(**settings: Any) -> AsyncIterator[tuple[Bookie, Connect]]:
    async with in_world(1) as world, serving(world, MemoryTree(), replace(CONFIG, **settings)) as served:
        yield served


@pytest.fixture
async def conversation() -> AsyncIterator[tuple[Bookie, Peer]]:
    """Yield a bookie with the usual settings, and a client's end of a connection to it."""
    async with converse() as (bookie, connect):
        yield bookie, await connect()


@pytest.fixture
async def bookie(conversation: tuple[Bookie, Peer]) -> Bookie:
    return conversation[0]


@pytest.fixture
async def peer(conversation: tuple[Bookie, Peer]) -> Peer:
    return conversation[1]


# --- version 2


async def test_version_2_adds_reads_and_tells_no_ledger_from_no_entry(peer: Peer) -> None:
    """ "int32 header = version(2)<<24 | opcode<<16 | flags"; rc 0, 1 NOLEDGER, 2 NOENTRY."""
    assert await peer.ask2(head2(1) + KEY + entry(7, 0)) == (2, 1, 0, 0, 7, 0, b"")
    assert await peer.read2(7, 0) == (0, entry(7, 0))
    assert await peer.read2(7, -1) == (0, entry(7, 0))
    assert await peer.read2(7, 1) == (2, b"")
    assert await peer.read2(8, 0) == (1, b"")


async def test_version_2_refuses_by_key_fence_and_read_only_in_the_originals_codes(bookie: Bookie, peer: Peer) -> None:
    """ "102 UA, 104 FENCED, 105 READONLY"; "a recovery add skips the fence check"."""
    assert await peer.add2(7, 0) == 0
    assert await peer.add2(7, 1, key=OTHER_KEY) == 102
    assert (await peer.read2(7, -1, flags=1, key=OTHER_KEY))[0] == 102
    assert await peer.add2(7, 1) == 0, "the refused fence changed nothing"
    assert await peer.read2(7, -1, flags=1, key=KEY) == (0, entry(7, 1))
    assert await peer.add2(7, 2) == 104
    assert await peer.add2(7, 2, flags=2) == 0
    bookie.set_read_only(True)
    assert await peer.add2(9, 0) == 105
    assert await peer.add2(9, 0, flags=4) == 0, "of high priority"


async def test_version_2_fences_a_ledger_that_is_new_here(peer: Peer) -> None:
    """ "The fence of an unknown ledger is answered ENOENTRY and its writer is then refused." """
    assert await peer.read2(7, -1, flags=1, key=KEY) == (2, b"")
    assert await peer.read2(7, 0, flags=5, key=KEY) == (2, b"")
    assert await peer.add2(7, 0) == 104


async def test_version_2_batch_reads_stop_at_their_limits(peer: Peer) -> None:
    """ "Batch read stops at maxCount, maxSize, first missing entry; always >= 1 entry if the first exists." """
    for entry_id in (0, 1, 2, 4):
        await peer.add2(7, entry_id)

    async def read(first: int, count: int, size: int) -> list[bytes] | int:
        await peer.send(head2(7) + pack("!qqqiq", 7, first, 99, count, size))
        found = await peer.answer2()
        assert found[:3] == (2, 7, 0)
        assert unpack_from("!q", found[6]) == (99,)
        entries, data = [], found[6][8:]
        while data:
            end = 4 + unpack_from("!i", data)[0]
            entries.append(data[4:end])
            data = data[end:]
        return entries or found[3]

    assert await read(0, 2, 1 << 20) == [entry(7, 0), entry(7, 1)]
    assert await read(0, 100, 1 << 20) == [entry(7, i) for i in range(3)]
    assert await read(0, 100, 1) == [entry(7, 0)]
    assert await read(1, 0, 5 << 20) == [entry(7, 1), entry(7, 2)]
    assert await read(3, 1, 1 << 20) == 2


async def test_version_2_batch_reads_fence_as_reads_do(peer: Peer) -> None:
    """ "Batch read: header, lid, eid, requestId8, maxCount4, maxSize8 [, key]"."""
    await peer.add2(7, 0)

    async def fence(key: bytes) -> tuple[int, bytes]:
        await peer.send(head2(7, 1) + pack("!qqqiq", 7, 0, 99, 10, 1 << 20) + key)
        found = await peer.answer2()
        return found[3], found[6][8:]

    assert await fence(OTHER_KEY) == (102, b"")
    assert await peer.add2(7, 1) == 0
    sealed = [pack("!i", len(entry(7, i))) + entry(7, i) for i in range(2)]
    assert await fence(KEY) == (0, b"".join(sealed))
    assert await peer.add2(7, 2) == 104


async def test_version_2_answers_auth_and_refuses_what_only_version_3_has(peer: Peer) -> None:
    """ "replies to AUTH with EOK, plugin name AuthDisabledPlugin, empty payload"; unknown opcodes "100 BADREQ"."""
    await peer.send(head2(3) + b"\x0a\x01x\x12\x00")
    body = await peer.frame()
    assert body == head2(3) + b"\x0a\x12AuthDisabledPlugin\x12\x00"
    for opcode in (4, 5, 6, 9):
        assert (await peer.ask2(head2(opcode) + bytes(16)))[:4] == (2, opcode, 0, 100)


# --- which version


async def test_the_first_frame_decides_and_the_first_failure_is_for_good(peer: Peer) -> None:
    """ "On the first failure it switches permanently to v2." """
    assert await peer.add3(7, 0) == EOK
    assert await peer.add2(7, 1) == 0
    assert await peer.read2(7, 0) == (0, entry(7, 0))
    await peer.send(peer.read_request(7, 0).SerializeToString())
    body = await peer.frame()
    assert body is None or body[0] != 0x0A, "a message of version 3 is not answered as one any more"


async def test_frames_of_both_versions_in_one_chunk_are_answered_each_in_its_own(peer: Peer) -> None:
    first = peer.read_request(8, 5).SerializeToString()
    second = head2(2) + pack("!qq", 8, 5)
    await peer.send_bytes(b"".join(pack("!i", len(body)) + body for body in (first, second, second)))
    assert (await peer.answer3()).status == ENOLEDGER
    assert (await peer.answer2())[3] == 1
    assert (await peer.answer2())[3] == 1


# --- version 3


async def test_version_3_adds_and_its_reads_tell_the_lac(peer: Peer) -> None:
    """ "maxLAC set on normal reads to the bookie's known LAC"; "eid -1 = last entry"."""
    for entry_id in range(3):
        assert await peer.add3(7, entry_id) == EOK
    for entry_id, asked in ((0, 0), (2, 2), (2, -1)):
        read = await peer.read3(7, asked)
        assert (read.status, read.ledgerId, read.entryId) == (EOK, 7, asked)
        assert read.body == entry(7, entry_id)
        assert read.maxLAC == 1
        assert not read.HasField("lacUpdateTimestamp")


async def test_version_3_tells_what_is_not_there_and_no_more(peer: Peer) -> None:
    await peer.add3(7, 0)
    for ledger_id, entry_id, status in ((7, 99, ENOENTRY), (424242, 0, ENOLEDGER), (7, -2, EBADREQ)):
        read = await peer.read3(ledger_id, entry_id)
        assert read.status == status
        assert not read.HasField("body")
        assert not read.HasField("maxLAC")


async def test_version_3_fences_with_the_right_key_only(peer: Peer) -> None:
    """ "fence needs masterKey (missing => EUA)"; fencing reads carry no maxLAC."""
    await peer.add3(7, 0)
    assert (await peer.fence3(7, OTHER_KEY)).status == EUA
    assert (await peer.read3(7, -1, flag=pb.ReadRequest.FENCE_LEDGER)).status == EUA
    assert await peer.add3(7, 1) == EOK
    assert (await peer.read3(7, 1)).HasField("maxLAC")
    fenced = await peer.fence3(7)
    assert (fenced.status, fenced.body) == (EOK, entry(7, 1))
    assert not fenced.HasField("maxLAC")
    assert await peer.add3(7, 2) == EFENCED
    assert await peer.add3(7, 2, flag=pb.AddRequest.RECOVERY_ADD, priority=100) == EOK
    assert await peer.add3(7, 3, key=OTHER_KEY) == EUA


async def test_a_read_only_bookie_takes_high_priority_adds_alone() -> None:
    """ "a read-only bookie still accepts an add if the request is high priority"; WRITE_LAC: "EREADONLY in
    read-only"."""
    async with converse(force_read_only=True) as (_, connect):
        peer = await connect()
        assert await peer.add3(7, 0) == EREADONLY
        assert await peer.add3(7, 0, priority=100) == EOK
        assert await peer.write_lac(7, 0) == EREADONLY
        assert (await peer.read3(7, 0)).status == EOK
        assert (await peer.fence3(7)).status == EOK


async def test_a_header_of_another_version_or_operation_is_refused_and_the_connection_goes_on(peer: Peer) -> None:
    """ "version must be VERSION_THREE, else EBADVERSION"; "unknown op => EBADREQ"."""
    request = peer.request(pb.READ_ENTRY, version=2)
    request.readRequest.ledgerId, request.readRequest.entryId = 7, 0
    await peer.send(request.SerializeToString())
    assert (await peer.answer3()).status == EBADVERSION
    for operation in (pb.RANGE_READ_ENTRY, pb.RANGE_ADD_ENTRY):
        await peer.send(peer.request(operation).SerializeToString())
        assert (await peer.answer3()).status == EBADREQ
    await peer.send(bytes.fromhex("0a06080310631805"))  # operation 99, transaction 5
    body = await peer.frame()
    assert body == bytes.fromhex("0a06080310631805" + "109403")
    assert await peer.add3(7, 0) == EOK


async def test_auth_is_answered_by_the_plugin_that_asks_nothing_and_tls_is_refused(peer: Peer) -> None:
    """ "AuthDisabledPlugin ... empty payload"; START_TLS: "EBADREQ when TLS not configured"."""
    request = peer.request(pb.AUTH)
    request.authRequest.authPluginName, request.authRequest.payload = "mine", b"secret"
    answer = await peer.ask3(request)
    assert answer.status == EOK
    assert (answer.authResponse.authPluginName, answer.authResponse.payload) == ("AuthDisabledPlugin", b"")
    request = peer.request(pb.START_TLS)
    request.startTLSRequest.SetInParent()
    assert (await peer.ask3(request)).status == EBADREQ


async def test_an_explicit_lac_is_kept_with_its_key_and_told_with_the_last_entry(peer: Peer) -> None:
    """READ_LAC: "lacBody, lastEntryBody"; the body is stored unchanged."""
    await peer.add3(7, 0)
    await peer.add3(7, 1)
    lac = await peer.read_lac(7)
    assert (lac.status, lac.HasField("lacBody"), lac.lastEntryBody) == (EOK, False, entry(7, 1))
    assert await peer.write_lac(7, 1, key=OTHER_KEY) == EUA
    assert await peer.write_lac(7, 1) == EOK
    lac = await peer.read_lac(7)
    assert (lac.status, lac.lacBody, lac.lastEntryBody) == (EOK, package(7, 1), entry(7, 1))
    assert (await peer.read3(7, 0)).maxLAC == 1, "reads know of it too"


async def test_reading_the_lac_of_what_is_not_there_is_answered_as_the_original_does(peer: Peer) -> None:
    """ "READ_LAC of an unknown ledger gives ENOENTRY"; "NoEntry is an IOException => status EIO first, then overwritten
    by ENOENTRY only if both parts are missing"."""
    assert (await peer.read_lac(424242)).status == ENOENTRY
    await peer.fence3(8)
    assert (await peer.read_lac(8)).status == ENOENTRY
    assert await peer.write_lac(9, 5) == EOK, "a fence would not matter either"
    lac = await peer.read_lac(9)
    assert (lac.status, lac.lacBody, lac.HasField("lastEntryBody")) == (EIO, package(9, 5), False)


async def test_a_lac_package_of_another_ledger_is_no_request(peer: Peer) -> None:
    for body in (package(8, 1), b"short"):
        request = peer.request(pb.WRITE_LAC)
        write = request.writeLacRequest
        write.ledgerId, write.lac, write.masterKey, write.body = 7, 1, KEY, body
        assert (await peer.ask3(request)).status == EBADREQ
    assert (await peer.read_lac(7)).status == ENOENTRY


async def test_an_older_explicit_lac_does_not_replace_a_newer_one(peer: Peer) -> None:
    for lac in (5, 3):
        assert await peer.write_lac(7, lac) == EOK
    assert (await peer.read_lac(7)).lacBody == package(7, 5)


async def test_force_of_any_ledger_is_answered(peer: Peer) -> None:
    """ "FORCE_LEDGER of an unknown ledger gives EOK"."""
    assert await peer.add3(7, 0, write_flags=1) == EOK
    assert await peer.force(7) == EOK
    assert await peer.force(424242) == EOK


async def test_bookie_info_tells_what_was_asked_for() -> None:
    """ "requested bits 1 total, 2 free"."""
    async with converse() as (bookie, connect):
        bookie.total_bytes = lambda folder: 1 << 60
        peer = await connect()
        for requested, total, free in ((3, True, True), (1, True, False), (2, False, True), (0, False, False)):
            info = await peer.info(requested)
            assert info.status == EOK
            assert (info.HasField("totalDiskCapacity"), info.HasField("freeDiskSpace")) == (total, free)
            if total:
                assert info.totalDiskCapacity == 1 << 60
            if free:
                assert info.freeDiskSpace > 0


@pytest.mark.parametrize("flushed", [False, True], ids=["in the cache", "in the index"])
async def test_the_list_of_entries_has_every_entry_wherever_it_is(flushed: bool, bookie: Bookie, peer: Peer) -> None:
    """ "64-byte header + groups: firstSequenceStart, lastSequenceStart, sequenceSize, sequencePeriod"."""
    for entry_id in (0, 1, 2, 5, 6, 7, 10):
        await peer.add3(7, entry_id)
    if flushed:
        await bookie.checkpoint()
        await peer.add3(7, 11)
        await peer.add3(7, 12)
    found = await peer.entries(7)
    assert found.status == EOK
    data = found.availabilityOfEntriesOfLedger
    version, groups = unpack_from("!ii", data)
    assert (version, len(data)) == (0, 64 + 24 * groups)
    ids = set()
    for group in range(groups):
        first, last, size, period = unpack_from("!qqii", data, 64 + 24 * group)
        for start in range(first, last + 1, period or 1):
            ids |= set(range(start, start + size))
    assert ids == {0, 1, 2, 5, 6, 7, 10, *((11, 12) if flushed else ())}
    assert (await peer.entries(424242)).status == ENOLEDGER


# --- long polls


async def test_a_long_poll_waits_for_the_lac_and_brings_the_next_entry() -> None:
    """ "wait until LAC > previousLAC ...; with ENTRY_PIGGYBACK also try entry previousLAC+1"; it comes with
    lacUpdateTimestamp."""
    async with converse() as (bookie, connect):
        writer, reader = await connect(), await connect()
        for entry_id in range(3):
            await writer.add3(4, entry_id)
        request = reader.read_request(4, -1, previousLAC=1, timeOut=5000, flag=pb.ReadRequest.ENTRY_PIGGYBACK)
        await reader.send(request.SerializeToString())
        assert await reader.answers_within(1.0) is None
        await writer.add3(4, 3)
        read = (await reader.answer3()).readResponse
        assert (read.status, read.entryId, read.body, read.maxLAC) == (EOK, 2, entry(4, 2), 2)
        assert 0 < read.lacUpdateTimestamp <= bookie.world.clock.wall_ms()
        begin = trio.current_time()
        again = await reader.read3(4, -1, previousLAC=1, timeOut=5000, flag=pb.ReadRequest.ENTRY_PIGGYBACK)
        assert (again.entryId, again.maxLAC) == (2, 2), "it need not wait for what is known"
        assert trio.current_time() - begin < 1.0
        assert not again.HasField("lacUpdateTimestamp")


async def test_a_long_poll_that_nobody_writes_to_ends_in_time_with_the_lac_alone(bookie: Bookie, peer: Peer) -> None:
    for entry_id in range(3):
        await peer.add3(4, entry_id)
    begin = trio.current_time()
    read = await peer.read3(4, -1, previousLAC=1, timeOut=600, flag=pb.ReadRequest.ENTRY_PIGGYBACK)
    assert 0.6 <= trio.current_time() - begin < 1.0
    assert (read.status, read.entryId, read.HasField("body"), read.maxLAC) == (EOK, -1, False, 1)
    read = await peer.read3(4, -1, previousLAC=1, timeOut=600)
    assert (read.status, read.body, read.maxLAC) == (EOK, entry(4, 2), 1), "without piggyback, an ordinary read"
    assert bookie.long_polls == 0


async def test_a_fence_or_an_explicit_lac_ends_a_long_poll() -> None:
    """ "fence/close fires"."""
    async with converse() as (_, connect):
        writer, reader = await connect(), await connect()
        await writer.add3(4, 0)
        poll = partial(reader.read_request, 4, -1, timeOut=50_000, flag=pb.ReadRequest.ENTRY_PIGGYBACK)
        await reader.send(poll(previousLAC=-1).SerializeToString())
        assert await reader.answers_within(1.0) is None
        assert await writer.write_lac(4, 0) == EOK
        read = (await reader.answer3()).readResponse
        assert (read.entryId, read.body, read.maxLAC) == (0, entry(4, 0), 0)
        await reader.send(poll(previousLAC=0).SerializeToString())
        assert await reader.answers_within(1.0) is None
        begin = trio.current_time()
        await writer.fence3(4)
        read = (await reader.answer3()).readResponse
        assert trio.current_time() - begin < 1.0
        assert (read.status, read.entryId, read.HasField("body"), read.maxLAC) == (EOK, -1, False, 0)
        assert not read.HasField("lacUpdateTimestamp")
        begin = trio.current_time()
        await reader.ask3(poll(previousLAC=0))
        assert trio.current_time() - begin < 1.0, "a fenced ledger is not waited for"


async def test_a_long_poll_finds_the_lac_though_the_next_entry_is_on_another_bookie(peer: Peer) -> None:
    """ "EOK without body if missing"."""
    await peer.add3(4, 0)
    await peer.add3(4, 2)  # it knows of LAC 1
    read = await peer.read3(4, -1, previousLAC=0, timeOut=600, flag=pb.ReadRequest.ENTRY_PIGGYBACK)
    assert (read.status, read.entryId, read.HasField("body"), read.maxLAC) == (EOK, -1, False, 1)


async def test_long_polls_that_cannot_be_are_refused() -> None:
    async with converse(long_polls_max=1) as (_, connect):
        peer = await connect()
        await peer.add3(4, 0)
        piggyback = pb.ReadRequest.ENTRY_PIGGYBACK
        assert (await peer.read3(4, 0, previousLAC=-1, timeOut=1, flag=piggyback)).status == EBADREQ
        assert (await peer.read3(424242, -1, previousLAC=-1, timeOut=1, flag=piggyback)).status == ENOLEDGER
        waiting = peer.read_request(4, -1, previousLAC=-1, timeOut=50_000)
        await peer.send(waiting.SerializeToString())
        assert await peer.answers_within(1.0) is None
        assert (await peer.read3(4, -1, previousLAC=-1, timeOut=50_000)).status == ETOOMANYREQUESTS


async def test_a_peer_that_goes_takes_its_long_polls_with_it() -> None:
    async with converse() as (bookie, connect):
        writer, reader = await connect(), await connect()
        await writer.add3(4, 0)
        await reader.send(reader.read_request(4, -1, previousLAC=-1, timeOut=50_000).SerializeToString())
        assert await reader.answers_within(1.0) is None
        assert bookie.long_polls == 1
        reader._stream.close()
        await until(lambda: bookie.long_polls == 0, within=1)
        await writer.add3(4, 1)


# --- bounds


async def test_a_full_journal_queue_is_told_as_too_many_requests_in_either_version() -> None:
    """ "queue full => ETOOMANYREQUESTS"."""
    async with converse() as (bookie, connect):
        peer, old = await connect(), await connect()
        await peer.add3(7, 0)
        bookie.journal.of(0).queued_bytes += 1 << 30
        assert await peer.add3(7, 1) == ETOOMANYREQUESTS
        assert await peer.write_lac(7, 0) == ETOOMANYREQUESTS
        assert await peer.force(7) == ETOOMANYREQUESTS
        assert (await peer.fence3(7)).status == ETOOMANYREQUESTS
        assert await old.add2(7, 1) == 106
        bookie.journal.of(0).queued_bytes -= 1 << 30
        assert await peer.add3(7, 1) == EOK, "the refused fence changed nothing"


async def test_recovery_reads_do_not_wait_behind_others() -> None:
    """ "High-priority pool: v3 header priority>0 or FENCE flag on a read"."""
    async with converse(reads_in_flight_max=1, read_workers=1) as (bookie, connect):
        peer = await connect()
        for entry_id in range(4):
            await peer.add3(7, entry_id)
        await bookie.checkpoint()
        bookie._readers.of(7).waiting += 1
        assert (await peer.read3(7, 1)).status == ETOOMANYREQUESTS
        assert (await peer.fence3(7)).status == EOK
        bookie._readers.of(7).waiting -= 1
        assert (await peer.read3(7, 1)).status == EOK


async def test_a_peer_that_takes_no_answers_is_not_read_and_loses_nothing(peer: Peer) -> None:
    big = bytes(1 << 20)
    whole = entry(7, 0, big)
    assert (await peer.ask2(head2(1) + KEY + whole))[3] == 0
    for _ in range(200):
        await peer.send(head2(2) + pack("!qq", 7, 0))
    for _ in range(200):
        found = await peer.answer2()
        assert (found[3], len(found[6])) == (0, len(whole))
