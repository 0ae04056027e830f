"""Version 3 of the bookie protocol, from both ends, beside what protobuf makes of the same bytes."""

from __future__ import annotations

import random
import time
from struct import pack
from typing import Any, cast

import pytest

from quire.wire.bookkeeper import BookkeeperProtocol_pb2 as pb
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import DO_FENCING, HIGH_PRIORITY, RECOVERY_ADD, Rc
from quire.wire.bookkeeper.v3 import Operation
from quire.wire.bookkeeper.varints import decode, encode

KEY = b"k" * 20
DIGEST = Digest(DigestType.CRC32C)
IDS = [0, 1, 126, 127, 128, 300, 16383, 16384, 1 << 31, 1 << 40, (1 << 63) - 2]


def entry(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    return DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload


def add(
    txn_id: int,
    ledger_id: int,
    entry_id: int,
    payload: bytes = b"payload",
    *,
    key: bytes = KEY,
    flags: int = 0,
    write_flags: int = 0,
) -> bytes:
    sealed = entry(ledger_id, entry_id, payload)
    [frame] = v3.add_requests(txn_id, ledger_id, [entry_id], key, [sealed], flags, write_flags)
    return b"".join(frame) if isinstance(frame, tuple) else bytes(frame)


def framed(message: Any) -> bytes:
    body: bytes = message.SerializeToString()
    return pack("!i", len(body)) + body


def message(operation: int, txn_id: int = 9, version: int = 3, priority: int = 0) -> pb.Request:
    request = pb.Request()
    header: Any = request.header  # also codes that the protocol does not have
    header.version, header.operation, header.txnId = version, operation, txn_id
    if priority:
        header.priority = priority
    return request


def add_message(txn_id: int, ledger_id: int, entry_id: int, body: bytes, key: bytes = KEY) -> pb.Request:
    request = message(Operation.ADD_ENTRY, txn_id)
    request.addRequest.ledgerId = ledger_id
    request.addRequest.entryId = entry_id
    request.addRequest.masterKey = key
    request.addRequest.body = body
    return request


def adds(frame: v2.Frame) -> list[v3.AddRequest]:
    requests = v3.decode_requests(frame)
    assert all(isinstance(request, v3.AddRequest) for request in requests), requests
    return [request for request in requests if isinstance(request, v3.AddRequest)]


def runs(frame: v2.Frame) -> list[Run]:
    return [each.run for each in adds(frame)]


def spans(frame: v2.Frame) -> list[tuple[int, int, int]]:
    return [(run.ledger_id, run.first, run.count) for run in runs(frame)]


def content(frame: v2.Frame) -> tuple[object, ...]:
    """Return all fields of one ADD_ENTRY."""
    [(run, txns, write_flags)] = adds(frame)
    whole = b"".join(run.parts)
    return run.ledger_id, run.first, run.count, whole, run.size, run.offsets, run.key, run.flags, txns, write_flags


# --- adds, as a bookie receives them


def test_consecutive_adds_of_a_ledger_are_one_run_of_sizes_and_entries() -> None:
    payloads = [b"x" * size for size in (0, 7, 7, 7, 1000, 3, 80, 80)]
    [(run, txns, write_flags)] = adds(b"".join(add(125 + i, 7, 124 + i, payload) for i, payload in enumerate(payloads)))
    entries = [entry(7, 124 + i, payload) for i, payload in enumerate(payloads)]
    whole = b"".join(pack("!i", len(e)) + e for e in entries)
    assert b"".join(run.parts) == whole
    assert (run.ledger_id, run.first, run.key, run.flags, write_flags) == (7, 124, KEY, 0, 0)
    assert run.size == len(whole)
    assert [whole[o + 4 : o + 4 + len(e)] for o, e in zip(run.offsets, entries, strict=True)] == entries
    assert [decode(txn) for txn in txns] == list(range(125, 133))


@pytest.mark.parametrize("first", IDS[:-1])
def test_a_run_goes_on_where_its_numbers_grow_longer(first: int) -> None:
    entries = [entry(first, first + i, b"payload") for i in range(300)] if first < 1 << 62 else []
    [frame] = v3.add_requests(first, first, range(first, first + 300), KEY, entries)
    [(run, txns, _)] = adds(frame)
    assert len(run.offsets) == 300
    assert [decode(txn) for txn in txns] == list(range(first, first + 300))
    assert b"".join(run.parts) == b"".join(pack("!i", len(each)) + each for each in entries)


def test_a_run_ends_where_ledger_key_flags_or_order_change() -> None:
    assert spans(add(1, 1, 0) + add(2, 1, 1) + add(3, 2, 2) + add(4, 2, 3)) == [(1, 0, 2), (2, 2, 2)]
    assert spans(add(1, 1, 0) + add(2, 1, 2) + add(3, 1, 1)) == [(1, 0, 1), (1, 2, 1), (1, 1, 1)]
    assert spans(add(1, 1, 0) + add(2, 1, 1, key=b"o" * 20)) == [(1, 0, 1), (1, 1, 1)]
    flagged = adds(add(1, 1, 0) + add(2, 1, 1, flags=RECOVERY_ADD | HIGH_PRIORITY) + add(3, 1, 2, write_flags=1))
    assert [(each.run.flags, each.write_flags) for each in flagged] == [(0, 0), (6, 0), (0, 1)]
    assert spans(add(1, 1, 0, write_flags=1) + add(2, 1, 1, write_flags=1)) == [(1, 0, 2)]
    # The same length, another tail; another place of the tail.
    assert [each.write_flags for each in adds(add(1, 1, 0, write_flags=1) + add(2, 1, 1, write_flags=2))] == [1, 2]
    recovery, plain = add(1, 1, 0, flags=RECOVERY_ADD), add(2, 1, 1, payload=b"payload+++")
    assert len(recovery) == len(plain)
    assert [run.flags for run in runs(recovery + plain)] == [RECOVERY_ADD, 0]


def test_adds_of_many_ledgers_in_turn_cost_no_more_with_every_frame_behind_them() -> None:
    def decoded(count: int) -> float:
        chunk = b"".join(add(i, i % 2, i, bytes(i % 3)) for i in range(count))
        txns = [encode(i) for i in range(count)]
        answers = b"".join(v3.add_responses(Rc.OK, i % 2, [i], [txns[i]]) for i in range(count))
        began = time.process_time()
        assert len(v3.decode_requests(chunk)) == count
        assert len(v3.decode_responses(answers)) == count
        return time.process_time() - began

    # 16 times the frames: 16 times the work, not 256 times.
    few = min(decoded(250) for _ in range(3))
    assert min(decoded(4000) for _ in range(3)) < 64 * few


def test_transaction_ids_need_no_order() -> None:
    [(_, txns, _)] = adds(add(900, 1, 0) + add(200, 1, 1) + add(5, 1, 2))
    assert [decode(txn) for txn in txns] == [900, 200, 5]


def test_a_small_entry_does_not_pin_the_chunk_and_a_big_one_is_not_copied() -> None:
    big = b"x" * (v2.LENT_MAX + 100)
    chunk = add(1, 1, 0) + add(2, 1, 1, big) + add(3, 1, 2)
    small, large, after = runs(chunk)
    assert [type(part) for part in small.parts + after.parts] == [bytes, bytes]
    assert isinstance(large.parts[1], memoryview)
    assert large.parts[1].obj is chunk
    assert b"".join(large.parts) == pack("!i", 36 + len(big)) + entry(1, 1, big)


def test_big_entries_leave_as_pairs_and_arrive_whole() -> None:
    payloads = [b"a", b"b" * (v2.JOIN_MAX + 100), b"c"]
    entries = [entry(1, i, payload) for i, payload in enumerate(payloads)]
    frames = v3.add_requests(1, 1, range(3), KEY, entries)
    assert [type(frame) for frame in frames] == [bytes, tuple, bytes]
    assert frames[1][1] is entries[1]
    for sent in (frames, v3.add_requests(1, 1, range(3), KEY, entries, RECOVERY_ADD, 1)):
        received = [run for frame in sent for run in runs(frame)]
        assert [b"".join(run.parts)[4:] for run in received] == entries


def test_adds_are_encoded_as_protobuf_encodes_them() -> None:
    rng = random.Random(1)
    for _ in range(200):
        txn_id, ledger_id, entry_id = (rng.choice(IDS) for _ in range(3))
        flags, write_flags = rng.choice([0, 2, 4, 6]), rng.choice([0, 1])
        body = entry(ledger_id, entry_id, bytes(rng.choice([0, 5, 100, 20_000])))
        request = add_message(txn_id, ledger_id, entry_id, body)
        if flags & HIGH_PRIORITY:
            request.header.priority = v3.PRIORITY
        if flags & RECOVERY_ADD:
            request.addRequest.flag = pb.AddRequest.RECOVERY_ADD
        if write_flags:
            request.addRequest.writeFlags = write_flags
        [frame] = v3.add_requests(txn_id, ledger_id, [entry_id], KEY, [body], flags, write_flags)
        assert (b"".join(frame) if isinstance(frame, tuple) else frame) == framed(request)
        [(run, txns, sent)] = adds(frame)
        assert (run.flags, sent, txns) == (flags, write_flags, [encode(txn_id)])


def test_an_add_in_another_order_of_fields_is_the_same_add() -> None:
    usual = add_message(5, 7, 3, entry(7, 3, b"payload"))
    header = b"\x0a\x06\x08\x03\x10\x02\x18\x05"
    body = usual.addRequest.SerializeToString()
    swapped = b"\xaa\x06" + encode(len(body)) + body + header
    assert content(pack("!i", len(swapped)) + swapped) == content(framed(usual))
    usual.addRequest.writeFlags = 3
    usual.requestContext.add(key="k", value="v")
    usual.header.priority = 7
    run, txns, write_flags = adds(framed(usual) + add(6, 7, 4))[0]
    assert (run.first, write_flags, run.flags, txns) == (3, 3, HIGH_PRIORITY, [b"\x05"])


@pytest.mark.parametrize(
    "request_",
    [
        add_message(9, 7, 3, entry(7, 4, b"x")),
        add_message(9, 7, 3, entry(8, 3, b"x")),
        add_message(9, 7, 3, b"short"),
        add_message(9, 7, 3, entry(7, 3, b"x"), key=b"short"),
        add_message(9, 7, -3, entry(7, -3, b"x")),
        add_message(9, -7, 3, entry(-7, 3, b"x")),
    ],
    ids=["entry id", "ledger id", "no entry", "key", "negative entry", "negative ledger"],
)
def test_an_add_that_is_not_its_entrys_is_refused_alone(request_: pb.Request) -> None:
    before, refused, after = v3.decode_requests(add(8, 7, 2) + framed(request_) + add(10, 7, 3))
    assert isinstance(before, v3.AddRequest)
    assert isinstance(after, v3.AddRequest)
    ids = (request_.addRequest.ledgerId, request_.addRequest.entryId)
    assert refused == v3.Unsupported(Operation.ADD_ENTRY, 9, Rc.BAD_REQUEST, *ids)


def test_a_wrong_id_in_the_middle_of_a_run_ends_it() -> None:
    good = [add(i, 7, i) for i in range(5)]
    wrong = bytearray(good[2])
    wrong[wrong.index(b"\x10\x02\x1a") + 1] = 9
    assert [type(each) for each in v3.decode_requests(b"".join([*good[:2], wrong, *good[3:]]))] == [
        v3.AddRequest,
        v3.Unsupported,
        v3.AddRequest,
    ]


def test_numbers_longer_than_they_need_to_be_are_the_same_numbers() -> None:
    """No known client sends them, but they must not stop the bookie."""
    usual = add(5, 7, 3)
    longer = usual.replace(b"\x10\x03\x1a", b"\x10\x83\x00\x1a")
    inner = longer.index(b"\xaa\x06") + 2
    longer = pack("!i", len(longer) - 4) + longer[4:inner] + encode(longer[inner] + 1) + longer[inner + 1 :]
    assert content(longer) == content(usual)
    assert spans(longer + add(6, 7, 4) + longer) == [(7, 3, 1), (7, 4, 1), (7, 3, 1)]
    ack = v3.add_responses(Rc.OK, 7, [3], [b"\x05"])
    longer = pack("!i", len(ack) - 3) + ack[4:-7] + bytes([ack[-7] + 1]) + ack[-6:-1] + b"\x83\x00"
    assert v3.decode_responses(longer + longer + ack) == [v2.AddAcks(Rc.OK, 7, 3, 3)] * 3


# --- everything else, as a bookie receives it


def test_reads_are_encoded_and_decoded_as_protobuf_does() -> None:
    rng = random.Random(1)
    for _ in range(300):
        txn_id, ledger_id = rng.choice(IDS), rng.choice(IDS)
        entry_id = rng.choice([*IDS, -1])
        fence = rng.random() < 0.3
        poll = not fence and rng.random() < 0.5
        flags = (DO_FENCING if fence else 0) | rng.choice([0, HIGH_PRIORITY])
        sent = v3.ReadRequest(
            txn_id,
            ledger_id,
            entry_id,
            flags,
            KEY if fence else None,
            rng.choice([-1, 0, 300]) if poll else None,
            rng.choice([0, 1000, 100_000]) if poll else None,
            poll and rng.random() < 0.5,
        )
        request = message(Operation.READ_ENTRY, txn_id, priority=v3.PRIORITY if flags & HIGH_PRIORITY else 0)
        read = request.readRequest
        read.ledgerId, read.entryId = ledger_id, entry_id
        if fence:
            read.masterKey = KEY
            read.flag = pb.ReadRequest.FENCE_LEDGER
        if sent.previous_lac is not None and sent.timeout_ms is not None:
            read.previousLAC, read.timeOut = sent.previous_lac, sent.timeout_ms
        if sent.piggyback:
            read.flag = pb.ReadRequest.ENTRY_PIGGYBACK
        frame = v3.read_request(
            *sent[:5], previous_lac=sent.previous_lac, timeout_ms=sent.timeout_ms, piggyback=sent.piggyback
        )
        assert frame == framed(request)
        assert v3.decode_request(frame) == sent
        request.requestContext.add(key="k", value="v")
        assert v3.decode_request(framed(request)) == sent


def test_other_requests_between_adds_keep_their_place() -> None:
    requests = v3.decode_requests(
        add(1, 1, 0) + v3.read_request(2, 1, 0) + add(3, 1, 1) + add(4, 1, 2) + v3.force_request(5, 1)
    )
    assert [type(request) for request in requests] == [v3.AddRequest, v3.ReadRequest, v3.AddRequest, v3.ForceRequest]


def test_every_request_says_again_what_was_put_into_it() -> None:
    assert v3.decode_request(v3.auth_request(1, "plugin", b"payload")) == v3.AuthRequest(1, "plugin", b"payload")
    lac = v3.WriteLacRequest(2, 7, 5, KEY, b"package")
    assert v3.decode_request(v3.write_lac_request(*lac)) == lac
    assert v3.decode_request(v3.read_lac_request(3, 7)) == v3.ReadLacRequest(3, 7)
    assert v3.decode_request(v3.bookie_info_request(4, 3)) == v3.BookieInfoRequest(4, 3)
    assert v3.decode_request(v3.start_tls_request(5)) == v3.StartTlsRequest(5)
    assert v3.decode_request(v3.force_request(6, 7)) == v3.ForceRequest(6, 7)
    assert v3.decode_request(v3.list_of_entries_request((1 << 64) - 1, 7)) == v3.ListOfEntriesRequest((1 << 64) - 1, 7)


def test_an_operation_that_nobody_knows_is_told_by_its_number() -> None:
    for operation in (3, 4, 12, 1000):
        request = v3.force_request(9, 7).replace(b"\x10\x0a", b"\x10" + encode(operation))
        body = bytearray(request[4:])
        body[1] = 4 + 1 + len(encode(operation))
        frame = pack("!i", len(body)) + body
        refused = v3.decode_request(frame)
        assert refused == v3.Unsupported(operation, 9, Rc.BAD_REQUEST, -1, -1)
        assert isinstance(refused, v3.Unsupported)
        answer = v3.decode_response(v3.refusal(*refused))
        assert isinstance(answer, v3.Reply)
        assert (answer.txn_id, answer.outcome.rc) == (9, Rc.BAD_REQUEST)


def test_another_version_and_a_missing_or_half_body_are_refused() -> None:
    old = message(Operation.FORCE_LEDGER, version=2)
    old.forceLedgerRequest.ledgerId = 7
    assert v3.decode_request(framed(old)) == v3.Unsupported(10, 9, Rc.BAD_VERSION, 7, -1)
    assert v3.decode_request(framed(message(Operation.READ_LAC))) == v3.Unsupported(7, 9, Rc.BAD_REQUEST, -1, -1)
    half = message(Operation.WRITE_LAC)
    half.writeLacRequest.ledgerId = 7
    body = half.SerializePartialToString()
    assert v3.decode_request(pack("!i", len(body)) + body) == v3.Unsupported(6, 9, Rc.BAD_REQUEST, 7, -1)
    assert v3.decode_request(v3.read_request(9, -7, 1)) == v3.Unsupported(1, 9, Rc.BAD_REQUEST, -7, 1)
    assert v3.decode_request(v3.read_lac_request(9, -7)) == v3.Unsupported(7, 9, Rc.BAD_REQUEST, -7, -1)


def test_the_first_frame_of_version_2_ends_version_3_where_it_stands() -> None:
    first = v3.read_request(1, 7, 0)
    second = v2.read_request(7, 1)
    read, end = v3.decode_requests(first + second + first)
    assert isinstance(read, v3.ReadRequest)
    assert isinstance(end, v3.NotVersion3)
    assert end.position == len(first)
    assert v3.is_version_3(first)
    assert not v3.is_version_3(second)
    assert not v3.is_version_3(b"\0\0\0\1")


def test_bytes_of_any_kind_never_raise() -> None:
    rng = random.Random(1)
    good = (
        add(1, 7, 0)
        + add(2, 7, 1)
        + v3.read_request(3, 7, 0, DO_FENCING, KEY)
        + v3.write_lac_request(4, 7, 1, KEY, b"x")
    )
    for _ in range(3000):
        damaged = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        v3.decode_requests(bytes(damaged[: rng.randrange(len(damaged))] if rng.random() < 0.3 else damaged))


def test_what_the_bytes_say_is_what_protobuf_says_of_damaged_frames_too() -> None:
    """The fast decoders must not accept an add or a read with another meaning."""
    rng = random.Random(2)
    compared = 0
    for _ in range(4000):
        frame = bytearray(rng.choice([add(300, 7, 200), v3.read_request(300, 7, 200, DO_FENCING, KEY)]))
        frame[rng.randrange(4, min(len(frame), 60))] = rng.randrange(256)
        (request,) = v3.decode_requests(bytes(frame))
        parsed = pb.Request()
        if isinstance(request, v3.NotVersion3):
            continue
        parsed.ParseFromString(bytes(frame[4:]))
        if isinstance(request, v3.AddRequest):
            said = parsed.addRequest
            run = request.run
            assert (said.ledgerId, said.entryId) == (run.ledger_id, run.first)
            assert said.masterKey == run.key
            assert said.body == b"".join(run.parts)[4:]
            assert [parsed.header.txnId] == [decode(txn) for txn in request.txns]
            compared += 1
        elif isinstance(request, v3.ReadRequest):
            asked = parsed.readRequest
            assert (asked.ledgerId, asked.entryId, parsed.header.txnId) == (
                request.ledger_id,
                request.entry_id,
                request.txn_id,
            )
            assert asked.masterKey == (request.master_key or b"")
            compared += 1
    assert compared > 1000


# --- what a client receives


def test_answers_to_consecutive_adds_come_as_one() -> None:
    for first in (0, 100, 16_300):
        txns = [encode(txn) for txn in range(first, first + 200)]
        chunk = v3.add_responses(Rc.OK, 7, range(first, first + 200), txns)
        acks = v3.decode_responses(chunk)
        # Numbers that grow longer begin another.
        assert len(acks) <= 2
        assert [(each.rc, each.ledger_id) for each in acks if isinstance(each, v2.AddAcks)] == [(0, 7)] * len(acks)
        ranges = [(each.first, each.last) for each in acks if isinstance(each, v2.AddAcks)]
        assert [i for low, high in ranges for i in range(low, high + 1)] == list(range(first, first + 200))


def test_answers_in_any_order_and_of_any_code_are_told_apart() -> None:
    txn = [b"\x01"]
    chunk = b"".join(
        [
            v3.add_responses(Rc.OK, 7, [3], txn),
            v3.add_responses(Rc.OK, 7, [4], txn),
            v3.add_responses(Rc.FENCED, 7, [5], txn),
            v3.add_responses(Rc.OK, 7, [6], txn),
            v3.add_responses(Rc.OK, 8, [7], txn),
            v3.add_responses(Rc.OK, 8, [7], txn),
            v3.add_responses(Rc.OK, 8, [-1], txn),
        ]
    )
    assert v3.decode_responses(chunk) == [
        v2.AddAcks(Rc.OK, 7, 3, 4),
        v2.AddAcks(Rc.FENCED, 7, 5, 5),
        v2.AddAcks(Rc.OK, 7, 6, 6),
        v2.AddAcks(Rc.OK, 8, 7, 7),
        v2.AddAcks(Rc.OK, 8, 7, 7),
        v2.AddAcks(Rc.OK, 8, -1, -1),
    ]


def test_every_code_goes_there_and_back() -> None:
    assert set(v3.STATUS_OF) == set(Rc)
    for rc in Rc:
        assert v3.decode_response(v3.add_responses(rc, 7, [3], [b"\x01"])) == v2.AddAcks(rc, 7, 3, 3)
        assert v3.decode_response(v3.refusal(10, 9, rc, 7)) == v3.Reply(9, v3.Done(rc, 7))
        assert v3.STATUS_OF[rc] in pb.StatusCode.values()


def test_read_answers_are_encoded_and_decoded_as_protobuf_does() -> None:
    rng = random.Random(1)
    for _ in range(300):
        rc = rng.choice(list(Rc))
        txn_id, ledger_id, entry_id = rng.choice(IDS), rng.choice(IDS), rng.choice([*IDS, -1])
        body = bytes(rng.choice([0, 50, 300, 20_000])) if rng.random() < 0.5 else None
        max_lac = rng.choice([-1, 0, 300, None])
        updated = rng.choice([None, 1_700_000_000_000])
        response = pb.Response()
        response.header.version = pb.VERSION_THREE
        response.header.operation = pb.READ_ENTRY
        response.header.txnId = txn_id
        read = response.readResponse
        response.status = read.status = cast("pb.StatusCode", v3.STATUS_OF[rc])
        read.ledgerId, read.entryId = ledger_id, entry_id
        if body is not None:
            read.body = body
        if max_lac is not None:
            read.maxLAC = max_lac
        if updated is not None:
            read.lacUpdateTimestamp = updated
        frame = b"".join(
            v3.read_response(txn_id, rc, ledger_id, entry_id, body, max_lac=max_lac, lac_update_ms=updated)
        )
        assert frame == framed(response)
        outcome = v2.ReadResponse(rc, ledger_id, entry_id, memoryview(body or b""), max_lac, updated)
        assert v3.decode_response(frame) == v3.Reply(txn_id, outcome)
        # The same in an order of fields that nobody uses.
        swapped = frame[4 + 2 + frame[5] :] + frame[4 : 4 + 2 + frame[5]]
        assert v3.decode_response(frame[:4] + swapped) == v3.Reply(txn_id, outcome)


def test_an_entry_that_was_read_is_not_copied() -> None:
    chunk = b"".join(v3.read_response(1, Rc.OK, 7, 3, b"x" * 1000, max_lac=5))
    reply = v3.decode_response(chunk)
    assert isinstance(reply, v3.Reply)
    assert isinstance(reply.outcome, v2.ReadResponse)
    assert reply.outcome.entry.obj is chunk


def test_every_answer_says_again_what_was_put_into_it() -> None:
    def outcome(frame: bytes) -> v3.Outcome:
        reply = v3.decode_response(frame)
        assert isinstance(reply, v3.Reply)
        assert reply.txn_id == 9
        return reply.outcome

    assert outcome(v3.auth_response(9, Rc.OK, "plugin", b"payload")) == v3.AuthAnswer(Rc.OK, "plugin", b"payload")
    assert outcome(v3.write_lac_response(9, Rc.READ_ONLY, 7)) == v3.Done(Rc.READ_ONLY, 7)
    assert outcome(v3.read_lac_response(9, Rc.OK, 7, b"lac", b"entry")) == v3.LacAnswer(
        Rc.OK, 7, b"lac", memoryview(b"entry")
    )
    assert outcome(v3.read_lac_response(9, Rc.NO_ENTRY, 7)) == v3.LacAnswer(Rc.NO_ENTRY, 7, None, None)
    assert outcome(v3.bookie_info_response(9, Rc.OK, 1, 2)) == v3.BookieInfo(Rc.OK, 1, 2)
    assert outcome(v3.bookie_info_response(9, Rc.OK, free=2)) == v3.BookieInfo(Rc.OK, None, 2)
    assert outcome(v3.force_response(9, Rc.OK, 7)) == v3.Done(Rc.OK, 7)
    assert outcome(v3.list_of_entries_response(9, Rc.OK, 7, b"list")) == v3.EntryList(Rc.OK, 7, b"list")
    assert outcome(v3.start_tls_response(9, Rc.BAD_REQUEST)) == v2.OtherResponse(9, Rc.BAD_REQUEST, -1, -1)
    assert b"".join([v3.start_tls_response(9, Rc.BAD_REQUEST)]) == bytes.fromhex("0000000b0a06080310091809109403")


def test_the_outer_code_counts_before_the_inner_and_an_unknown_one_is_a_failure() -> None:
    response = pb.Response()
    header: Any = response.header
    header.version, header.operation, header.txnId = 3, 10, 9
    response.status = pb.EUA
    response.forceLedgerResponse.status = pb.EOK
    response.forceLedgerResponse.ledgerId = 7
    assert v3.decode_response(framed(response)) == v3.Reply(9, v3.Done(Rc.UNAUTHORIZED, 7))
    response.status, response.forceLedgerResponse.status = pb.EOK, pb.EFENCED
    assert v3.decode_response(framed(response)) == v3.Reply(9, v3.Done(Rc.FENCED, 7))
    unknown = framed(response).replace(b"\x10\x00", b"\x10\x63")
    assert v3.decode_response(unknown) == v3.Reply(9, v3.Done(Rc.IO, 7))
    ack = v3.add_responses(Rc.OK, 7, [3], [b"\x01"]).replace(b"\x08\x00", b"\x08\x63")
    assert v3.decode_response(ack) == v2.AddAcks(Rc.IO, 7, 3, 3)


@pytest.mark.parametrize(
    "chunk",
    [
        b"\0\0\0",
        b"\0\0\0\0",
        b"\0\0\0\x09\x0a",
        b"\0\0\0\x05\x0a\xff\0\0\0",
        b"\0\0\0\x04\x10\0\x10\0",
        b"\x7f\0\0\0\0\0\0\0",
    ],
    ids=["half a length", "empty", "cut", "no message", "no transaction id", "too long"],
)
def test_bytes_that_are_no_answer_are_malformed(chunk: bytes) -> None:
    with pytest.raises(MalformedError):
        v3.decode_responses(chunk)


def test_damaged_answers_are_malformed_or_something_else_never_a_crash() -> None:
    rng = random.Random(3)
    good = b"".join(
        [
            v3.add_responses(Rc.OK, 7, range(3), [b"\x01", b"\x02", b"\x03"]),
            *v3.read_response(4, Rc.OK, 7, 3, b"entry", max_lac=5),
            v3.read_lac_response(5, Rc.OK, 7, b"lac", b"entry"),
            v3.bookie_info_response(6, Rc.OK, 1, 2),
        ]
    )
    for _ in range(3000):
        damaged = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            v3.decode_responses(bytes(damaged))
        except MalformedError:
            continue
