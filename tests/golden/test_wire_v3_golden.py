"""Messages of version 3 by Apache BookKeeper's client and bookie are decoded with the same meaning, and encoded as the
same bytes. How the data was made: bookkeeper/README.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.availability import Availability
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.v2 import Rc
from quire.wire.bookkeeper.v3 import Operation
from quire.wire.bookkeeper.varints import decode

WIRE = Path(__file__).parent / "bookkeeper/wire"
PASSWORD = b"wire"


def frames_of(path: Path) -> list[tuple[str, bytes]]:
    """Return ("client" or "bookie", frame) of version 3, in order."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    frames = [(line["dir"], bytes.fromhex(line["hex"])) for line in lines if "hex" in line]
    return [frame for frame in frames if v3.is_version_3(frame[1])]


CONVERSATIONS = [path.name for path in sorted(WIRE.glob("*.jsonl")) if frames_of(path)]


def encode_request(request: v3.Request) -> bytes:
    match request:
        case v3.AddRequest(run, [txn], write_flags):
            entry = b"".join(run.parts)[4:]
            [frame] = v3.add_requests(decode(txn), run.ledger_id, [run.first], run.key, [entry], run.flags, write_flags)
            assert isinstance(frame, bytes)
            return frame
        case v3.ReadRequest(txn_id, ledger_id, entry_id, flags, key, previous_lac, timeout_ms, piggyback):
            return v3.read_request(
                txn_id,
                ledger_id,
                entry_id,
                flags,
                key,
                previous_lac=previous_lac,
                timeout_ms=timeout_ms,
                piggyback=piggyback,
            )
        case v3.WriteLacRequest():
            return v3.write_lac_request(*request)
        case v3.ReadLacRequest():
            return v3.read_lac_request(*request)
        case v3.BookieInfoRequest():
            return v3.bookie_info_request(*request)
        case v3.ForceRequest():
            return v3.force_request(*request)
        case v3.ListOfEntriesRequest():
            return v3.list_of_entries_request(*request)
        case _:
            raise AssertionError(f"{request} is in no conversation")


def encode_response(response: v3.Response, txn_id: int) -> bytes:
    match response:
        case v2.AddAcks(rc, ledger_id, first, last):
            return v3.refusal(Operation.ADD_ENTRY, txn_id, rc, ledger_id, first) if first == last else b""
        case v3.Reply(_, v2.ReadResponse(rc, ledger_id, entry_id, entry, max_lac, updated)):
            body = entry if entry else None
            return b"".join(
                v3.read_response(txn_id, rc, ledger_id, entry_id, body, max_lac=max_lac, lac_update_ms=updated)
            )
        case v3.Reply(_, v3.LacAnswer(rc, ledger_id, lac, last_entry)):
            return v3.read_lac_response(txn_id, rc, ledger_id, lac, last_entry)
        case v3.Reply(_, v3.BookieInfo(rc, total, free)):
            return v3.bookie_info_response(txn_id, rc, total, free)
        case v3.Reply(_, v3.EntryList(rc, ledger_id, availability)):
            return v3.list_of_entries_response(txn_id, rc, ledger_id, availability)
        case _:
            raise AssertionError(f"{response} is in no conversation")


def txn_of(frame: bytes) -> int:
    """Return the transaction id, which is at the same place in every frame."""
    assert frame[10] == 0x18
    end = next(i for i in range(11, 21) if frame[i] < 128) + 1
    return decode(frame[11:end])


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_frame_is_decoded_and_encoded_to_the_same_bytes(name: str) -> None:
    asked: dict[int, v3.Request] = {}
    for side, frame in frames_of(WIRE / name):
        txn_id = txn_of(frame)
        if side == "client":
            request = asked[txn_id] = v3.decode_request(frame)
            assert encode_request(request) == frame
            continue
        response = v3.decode_response(frame)
        if isinstance(response, v3.Reply):
            assert response.txn_id == txn_id
        if isinstance(response, v3.Reply) and isinstance(response.outcome, v3.Done):
            lac = isinstance(asked[txn_id], v3.WriteLacRequest)
            encoded = (v3.write_lac_response if lac else v3.force_response)(txn_id, *response.outcome)
        else:
            encoded = encode_response(response, txn_id)
        assert encoded == frame


def said(name: str, side: str) -> list[bytes]:
    return [frame for who, frame in frames_of(WIRE / name) if who == side]


def answers(name: str) -> list[v3.Response]:
    return v3.decode_responses(b"".join(said(name, "bookie")))


def test_adds_and_reads_of_every_digest_carry_the_entries_that_were_written() -> None:
    digests = {"crc32": 1, "mac": 2, "crc32c": 3, "dummy": 4}
    for name, digest_type in digests.items():
        digest = Digest(DigestType(digest_type), PASSWORD)
        payloads: list[bytes] = []
        for request in v3.decode_requests(b"".join(said(f"v3-add-read-{name}.jsonl", "client"))):
            if isinstance(request, v3.AddRequest):
                run = request.run
                entries = v2.split_entries(memoryview(b"".join(run.parts)))
                payloads += [bytes(digest.open(run.ledger_id, i, entry)) for i, entry in enumerate(entries, run.first)]
        assert payloads == [b"entry-0", b"entry-1", b"entry-2", b""]
        read = [
            reply.outcome
            for reply in answers(f"v3-add-read-{name}.jsonl")
            if isinstance(reply, v3.Reply) and isinstance(reply.outcome, v2.ReadResponse)
        ]
        assert {bytes(digest.open(each.ledger_id, each.entry_id, each.entry)) for each in read} == set(payloads)


def test_every_code_that_the_bookie_gave_is_known() -> None:
    codes = [
        answer.rc if isinstance(answer, v2.AddAcks) else answer.outcome.rc for answer in answers("v3-errors.jsonl")
    ]
    assert {Rc.OK, Rc.NO_ENTRY, Rc.NO_LEDGER, Rc.UNAUTHORIZED, Rc.FENCED} == set(codes)


def test_recovery_is_marked_as_such() -> None:
    requests = [v3.decode_request(frame) for frame in said("v3-recovery-fencing.jsonl", "client")]
    reads = [request.flags for request in requests if isinstance(request, v3.ReadRequest)]
    assert reads == [v2.DO_FENCING] + [v2.DO_FENCING | v2.HIGH_PRIORITY] * 2 + [0] * 3
    adds = [request.run.flags for request in requests if isinstance(request, v3.AddRequest)]
    assert adds == [0] * 3 + [v2.RECOVERY_ADD | v2.HIGH_PRIORITY, 0]


def test_the_long_polls_tell_what_they_wait_for_and_how_long() -> None:
    requests = [v3.decode_request(frame) for frame in said("v3-tail-lac.jsonl", "client")]
    polls = [request for request in requests if isinstance(request, v3.ReadRequest) and request.timeout_ms]
    assert [(poll.previous_lac, poll.timeout_ms, poll.piggyback) for poll in polls] == [(1, 600, True), (1, 5000, True)]


def test_the_list_of_entries_is_the_one_we_would_make() -> None:
    [listed] = [
        reply.outcome
        for reply in answers("v3-list-of-entries-sorted.jsonl")
        if isinstance(reply, v3.Reply) and isinstance(reply.outcome, v3.EntryList)
    ]
    assert list(Availability.decode(listed.availability)) == [0, 1, 2, 3, 4]
    assert Availability.of(range(5)).encode() == listed.availability


def test_there_are_conversations_of_every_kind() -> None:
    assert len(CONVERSATIONS) == 16, CONVERSATIONS
