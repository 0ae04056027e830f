"""Version 2 of the bookie protocol, from both ends."""

from __future__ import annotations

import random
from struct import pack

import pytest

from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.errors import MalformedError
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Opcode, Rc

KEY = b"k" * 20
DIGEST = Digest(DigestType.CRC32C)


def entry(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    return DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload


def add(ledger_id: int, entry_id: int, payload: bytes = b"payload", *, key: bytes = KEY, flags: int = 0) -> bytes:
    sealed = entry(ledger_id, entry_id, payload)
    return v2.add_head(len(sealed), key, flags) + sealed


def runs(frame: v2.Frame) -> list[Run]:
    requests = v2.decode_requests(frame)
    assert all(isinstance(request, Run) for request in requests), requests
    return [request for request in requests if isinstance(request, Run)]


def spans(frame: v2.Frame) -> list[tuple[int, int, int]]:
    return [(run.ledger_id, run.first, len(run.offsets)) for run in runs(frame)]


# --- what a bookie receives


def test_consecutive_adds_of_a_ledger_are_one_run_of_sizes_and_entries() -> None:
    payloads = [b"x" * size for size in (0, 7, 7, 7, 1000, 3)]
    (run,) = runs(b"".join(add(7, 3 + i, payload) for i, payload in enumerate(payloads)))
    entries = [entry(7, 3 + i, payload) for i, payload in enumerate(payloads)]
    whole = b"".join(pack("!i", len(e)) + e for e in entries)
    assert b"".join(run.parts) == whole
    assert (run.ledger_id, run.first, run.key, run.flags, run.size) == (7, 3, KEY, 0, len(whole))
    assert [whole[o + 4 : o + 4 + len(e)] for o, e in zip(run.offsets, entries, strict=True)] == entries


def test_a_run_ends_where_ledger_id_key_flags_or_order_change() -> None:
    assert spans(add(1, 0) + add(1, 1) + add(2, 2) + add(2, 3)) == [(1, 0, 2), (2, 2, 2)]
    assert spans(add(1, 0) + add(1, 2) + add(1, 1)) == [(1, 0, 1), (1, 2, 1), (1, 1, 1)]
    assert spans(add(1, 0) + add(1, 1, key=b"o" * 20)) == [(1, 0, 1), (1, 1, 1)]
    flagged = runs(add(1, 0) + add(1, 1, flags=v2.RECOVERY_ADD | v2.HIGH_PRIORITY))
    assert [run.flags for run in flagged] == [0, 6]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 18, 33, 50, 63, 64, 65, 81, 145])
def test_a_run_of_entries_of_one_size_is_what_it_is_one_by_one(count: int) -> None:
    """Many entries of one size are decoded in blocks."""
    frames = [add(7, i, bytes([i]) * 100) for i in range(3, 3 + count)]
    (run,) = runs(b"".join(frames))
    alone = [runs(frame)[0] for frame in frames]
    assert b"".join(run.parts) == b"".join(part for each in alone for part in each.parts)
    assert list(run.offsets) == [i * alone[0].size for i in range(count)]
    assert run.size == count * alone[0].size


@pytest.mark.parametrize("at", [*range(18), 31, 32, 47, 48, 62, 63, 64, 65, 79, 80, 81, 88, 89])
@pytest.mark.parametrize("other", ["ledger", "key", "flags", "order", "size"])
def test_what_ends_a_run_of_entries_of_one_size_is_seen_wherever_it_stands(at: int, other: str) -> None:
    frames = [add(7, i, bytes(100)) for i in range(90)]
    frames[at] = {
        "ledger": add(8, at, bytes(100)),
        "key": add(7, at, bytes(100), key=b"o" * 20),
        "flags": add(7, at, bytes(100), flags=v2.RECOVERY_ADD),
        "order": add(7, at + 1, bytes(100)),
        "size": add(7, at, bytes(101)),
    }[other]
    found = runs(b"".join(frames))
    entries = [bytes(part) for run in found for part in _entries(run)]
    assert entries == [frame[v2.ADD_OVERHEAD :] for frame in frames]
    before, behind = [(7, 0, at)] * (at > 0), [(7, at + 1, 89 - at)] * (at < 89)
    middle = {"ledger": (8, at, 1), "order": (7, at + 1, 1)}.get(other, (7, at, 1))
    assert spans(b"".join(frames)) == ([(7, 0, 90)] if other == "size" else [*before, middle, *behind])


def _entries(run: Run) -> list[bytes]:
    whole = b"".join(run.parts)
    ends = [*run.offsets[1:], run.size]
    return [whole[start + 4 : stop] for start, stop in zip(run.offsets, ends, strict=True)]


def test_other_requests_between_adds_keep_their_place() -> None:
    requests = v2.decode_requests(add(1, 0) + v2.read_request(1, 0) + add(1, 1) + add(1, 2))
    assert [type(request).__name__ for request in requests] == ["Run", "ReadRequest", "Run"]


def test_a_run_pins_no_received_chunk() -> None:
    chunk = bytearray(add(1, 0) + add(1, 1))
    (run,) = runs(chunk)
    before = b"".join(run.parts)
    chunk[:] = bytes(len(chunk))
    assert b"".join(run.parts) == before


def test_a_big_entry_is_a_run_of_its_own_that_lies_in_the_chunk() -> None:
    big = b"b" * (v2.LENT_MAX + 100)
    found = runs(add(1, 0) + add(1, 1, big) + add(1, 2))
    assert [(run.first, len(run.parts)) for run in found] == [(0, 1), (1, 2), (2, 1)]
    assert b"".join(found[1].parts) == pack("!i", len(entry(1, 1, big))) + entry(1, 1, big)


def test_a_big_add_in_two_pieces_is_not_joined() -> None:
    payload = bytes(100_000)
    head = DIGEST.seal(1, 5, 4, 100, payload)
    (run,) = runs((v2.add_head(len(head) + len(payload), KEY, 6) + head, payload))
    assert run.parts[1] is payload
    assert b"".join(run.parts) == pack("!i", len(head) + len(payload)) + head + payload
    assert (run.ledger_id, run.first, run.key, run.flags, run.offsets) == (1, 5, KEY, 6, [0])
    assert run.size == 4 + len(head) + len(payload)


@pytest.mark.parametrize(
    "frame",
    [
        (b"", b""),
        (b"x" * 59, b""),
        (add(1, 0), b"more"),
        (v2.read_request(1, 2, v2.DO_FENCING, KEY) + bytes(16), b"x"),
        (v2.add_head(v2.FRAME_MAX, KEY) + entry(1, 0, b""), bytes(v2.FRAME_MAX - 36)),
    ],
    ids=["empty", "short", "too long", "read", "over the limit"],
)
def test_pieces_that_make_no_add_are_malformed(frame: v2.Frame) -> None:
    (request,) = v2.decode_requests(frame)
    assert isinstance(request, v2.Malformed)


def test_reads_fences_and_batches_are_decoded() -> None:
    assert v2.decode_requests(
        v2.read_request(7, -1)
        + v2.read_request(7, 5, v2.DO_FENCING | v2.HIGH_PRIORITY, KEY)
        + v2.batch_read_request(7, 5, 99, 10, 1 << 20)
    ) == [
        v2.ReadRequest(7, -1, 0, None),
        v2.ReadRequest(7, 5, 5, KEY),
        v2.BatchReadRequest(7, 5, 99, 10, 1 << 20, 0),
    ]


def test_what_is_not_served_is_answered_by_its_code() -> None:
    def frame(version: int, opcode: int, body: bytes) -> bytes:
        return pack("!iBBH", 4 + len(body), version, opcode, 0) + body

    ids = pack("!qq", 7, 5)
    assert v2.decode_requests(
        frame(2, Opcode.READ_LAC, ids) + frame(2, 99, b"") + frame(1, Opcode.READ, ids) + frame(2, Opcode.AUTH, b"hi")
    ) == [
        v2.Unsupported(Opcode.READ_LAC, -1, -1, Rc.BAD_REQUEST),
        v2.Unsupported(99, -1, -1, Rc.BAD_REQUEST),
        v2.Unsupported(Opcode.READ, -1, -1, Rc.BAD_VERSION),
        v2.AuthRequest(b"hi"),
    ]


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(-1, 0), (7, -1), (7, -0x1000)])
def test_adds_with_negative_ids_are_bad_requests(ledger_id: int, entry_id: int) -> None:
    assert v2.decode_requests(add(ledger_id, entry_id) + add(7, 1))[0] == v2.Unsupported(
        Opcode.ADD, ledger_id, entry_id, Rc.BAD_REQUEST
    )
    assert spans(add(7, 1)) == [(7, 1, 1)]


def test_entries_shorter_than_their_header_are_bad_requests() -> None:
    short = v2.add_head(31, KEY) + pack("!qq", 7, 5) + bytes(15)
    assert v2.decode_requests(short) == [v2.Unsupported(Opcode.ADD, 7, 5, Rc.BAD_REQUEST)]
    bare = v2.add_head(32, KEY) + pack("!qqqq", 7, 5, 4, 0)
    assert spans(add(7, 4) + bare + add(7, 6)) == [(7, 4, 3)]


@pytest.mark.parametrize("length", [0, 3, -1, -(1 << 31), v2.FRAME_MAX + 1, (1 << 31) - 1])
def test_lengths_that_no_frame_has_are_malformed_after_what_came_before(length: int) -> None:
    requests = v2.decode_requests(add(1, 0) + pack("!i", length) + bytes(64))
    assert [type(request).__name__ for request in requests] == ["Run", "Malformed"]


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes.fromhex("1603010200010001fc0303") + bytes(40), b"\0\0\0"]
)
def test_other_protocols_are_malformed(garbage: bytes) -> None:
    assert isinstance(v2.decode_requests(garbage)[-1], v2.Malformed)


def test_random_bytes_never_raise() -> None:
    rng = random.Random(5)
    good = add(1, 0) + v2.read_request(1, 2, 1, KEY) + v2.batch_read_request(1, 2, 3, 4, 5) + add(1, 1) * 3
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        requests = v2.decode_requests(bytes(data[: rng.randrange(len(data) + 1)]))
        assert all(not isinstance(request, v2.Malformed) for request in requests[:-1])


# --- what a client receives


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 300, 70_000])
@pytest.mark.parametrize("first", [0, 1, 250, 65_530, (1 << 40) - 3])
def test_answers_to_a_run_are_those_of_its_entries_one_by_one(first: int, count: int) -> None:
    ids = range(first, first + count)
    answers = v2.add_responses(Rc.FENCED, 7, ids)
    assert answers[: 28 * 10] == b"".join(v2.add_responses(Rc.FENCED, 7, [i]) for i in ids[:10])
    assert answers[-28:] == v2.add_responses(Rc.FENCED, 7, [ids[-1]])
    assert v2.decode_responses(answers) == [v2.AddAcks(Rc.FENCED, 7, first, first + count - 1)]


def test_answers_are_put_together_only_where_they_follow() -> None:
    one = [
        v2.AddAcks(0, 7, 0, 19),
        v2.AddAcks(0, 7, 30, 39),
        v2.AddAcks(104, 7, 40, 41),
        v2.AddAcks(0, 8, 42, 42),
        v2.AddAcks(0, 8, 41, 41),
    ]
    chunk = b"".join(v2.add_responses(rc, ledger, range(first, last + 1)) for rc, ledger, first, last in one)
    assert v2.decode_responses(chunk) == one


def test_answers_of_all_kinds_in_one_chunk() -> None:
    entries = [entry(7, 1, b"a"), entry(7, 2, b"bb")]
    body = b"".join(pack("!i", len(e)) + e for e in entries)
    chunk = (
        v2.add_responses(0, 7, range(20))
        + v2.response_head(Opcode.READ, 0, 7, -1, len(entries[0]))
        + entries[0]
        + v2.add_responses(0, 7, range(20, 22))
        + v2.batch_response_head(0, 7, 1, 99, len(body))
        + body
        + v2.response_head(Opcode.READ, Rc.NO_ENTRY, 7, 9)
        + v2.batch_response_head(Rc.NO_LEDGER, 7, 1, 98)
        + v2.auth_response(b"hello")
        + v2.response_head(Opcode.READ_LAC, Rc.BAD_REQUEST, -1, -1)
    )
    assert v2.decode_responses(chunk) == [
        v2.AddAcks(0, 7, 0, 19),
        v2.ReadResponse(0, 7, -1, memoryview(entries[0])),
        v2.AddAcks(0, 7, 20, 21),
        v2.BatchResponse(0, 7, 1, 99, [memoryview(e) for e in entries]),
        v2.ReadResponse(Rc.NO_ENTRY, 7, 9, memoryview(b"")),
        v2.BatchResponse(Rc.NO_LEDGER, 7, 1, 98, []),
        v2.AuthResponse(b"hello"),
        v2.OtherResponse(Opcode.READ_LAC, Rc.BAD_REQUEST, -1, -1),
    ]


@pytest.mark.parametrize(
    "chunk",
    [
        b"\0\0\0",
        pack("!i", 3) + bytes(8),
        pack("!i", v2.FRAME_MAX + 1) + bytes(64),
        v2.add_responses(0, 7, [1])[:-1],
        v2.response_head(Opcode.ADD, 0, 7, 1, 4) + bytes(4),
        pack("!iI", 4, 0x03020000),
        pack("!iI", 4, 0x02020000),
        v2.batch_response_head(0, 7, 1, 2, 6) + bytes(6),
        v2.batch_response_head(0, 7, 1, 2, 8) + pack("!i", 100) + bytes(4),
        v2.batch_response_head(0, 7, 1, 2, 8) + pack("!i", -1) + bytes(4),
    ],
)
def test_chunks_that_are_no_answers_are_malformed(chunk: bytes) -> None:
    with pytest.raises(MalformedError):
        v2.decode_responses(chunk)


def test_random_answers_are_decoded_or_malformed() -> None:
    rng = random.Random(6)
    good = v2.add_responses(0, 7, range(12)) + v2.response_head(Opcode.READ, 0, 7, 1, 4) + b"data"
    for _ in range(3000):
        data = bytearray(good)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            v2.decode_responses(bytes(data[: rng.randrange(len(data) + 1)]))
        except MalformedError:
            continue
