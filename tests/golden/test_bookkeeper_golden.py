"""Files and frames of Apache BookKeeper are decoded with the same meaning.

How the data was made: bookkeeper/README.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.journal.format import NO_MARK, ExplicitLac, Fence, LedgerKey, Record, decode_last_mark, file_id_of
from bookie.journal.replay import Replay, journal_ids
from quire.metadata.bookies import decode_cookie, encode_cookie, write_cookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import DIGEST_TYPES, Digest, DigestType, master_key, read_header
from quire.wire.bookkeeper.run import Run
from quire.world.real import real_world
from tests.unit.bookie.build import CONFIG, Client, with_bookie

GOLDEN = Path(__file__).parent / "bookkeeper"
DB = GOLDEN / "db"
MANIFEST: dict[int, dict[str, Any]] = {
    ledger["ledger"]: ledger for ledger in json.loads((DB / "manifest.json").read_text())
}
PASSWORD = b"golden"
SNAPSHOTS = [f"{state}/bk{number}" for state in ("clean", "crashed") for number in (1, 2, 3)]
EVERYWHERE = [1, 2, 3, 7, 8, 9, 5_000_000_000]
"""Ledgers of which each of the three bookies has every entry: their write quorum is 3."""


def check_entry(ledger_id: int, entry_id: int, entry: memoryview) -> None:
    """Check an entry: its digest is right, and its payload is the one in the manifest."""
    ledger = MANIFEST[ledger_id]
    payload = bytes(Digest(DIGEST_TYPES[ledger["digest"]], PASSWORD).open(ledger_id, entry_id, entry))
    expected = ledger["entries"][entry_id]
    assert len(payload) == expected["size"]
    if "hex" in expected:
        assert payload.hex() == expected["hex"]
    else:
        assert hashlib.sha256(payload).hexdigest() == expected["sha256"]


def journal_records(snapshot: str) -> list[Record]:
    reading = Replay(real_world(1).disk, str(DB / snapshot / "journal/current"), NO_MARK)
    return [record for batch in reading.batches() for record in batch]


def entries_of(records: list[Record]) -> Iterator[tuple[int, int, memoryview]]:
    for record in records:
        if isinstance(record, Run):
            for entry_id in range(record.first, record.last + 1):
                yield record.ledger_id, entry_id, record.entry(entry_id)


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_every_entry_in_a_journal_is_one_of_the_manifest(snapshot: str) -> None:
    found: dict[int, set[int]] = {}
    for ledger_id, entry_id, entry in entries_of(journal_records(snapshot)):
        check_entry(ledger_id, entry_id, entry)
        assert read_header(entry)[:2] == (ledger_id, entry_id)
        found.setdefault(ledger_id, set()).add(entry_id)
    for ledger_id in EVERYWHERE:
        assert found[ledger_id] == set(range(len(MANIFEST[ledger_id]["entries"])))


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_keys_fence_and_explicit_lac_are_in_the_journals(snapshot: str) -> None:
    records = journal_records(snapshot)
    keys = {record.ledger_id: record.key for record in records if isinstance(record, LedgerKey)}
    assert set(keys.values()) == {master_key(PASSWORD)}
    assert set(keys) >= {ledger for ledger, _, _ in entries_of(records)}
    assert {record for record in records if isinstance(record, Fence)} == {Fence(3)}
    lacs = [record for record in records if isinstance(record, ExplicitLac)]
    assert {record.ledger_id for record in lacs} == {2}
    digest = Digest(DigestType.HMAC, PASSWORD)
    assert digest.open_lac(2, lacs[-1].package) == MANIFEST[2]["explicitLac"]


def test_the_journal_reads_as_the_originals_shell_shows_it() -> None:
    shown = [
        (int(ledger), int(entry), int(size))
        for ledger, entry, size in re.findall(
            r"Lid=(-?\d+), Eid=(-?\d+), ByteOffset=\d+, EntrySize=(\d+)",
            (DB / "shell/readjournal_1a1fdbcafc3_txn.out").read_text(),
        )
    ]
    read: list[tuple[int, int, int]] = []
    for record in journal_records("clean/bk1"):
        match record:
            case Run():
                read += [(record.ledger_id, i, len(record.entry(i))) for i in range(record.first, record.last + 1)]
            case LedgerKey():
                read.append((record.ledger_id, -0x1000, len(record.encode()) - 4))
            case Fence():
                read.append((record.ledger_id, -0x2000, len(record.encode()) - 4))
            case ExplicitLac():
                read.append((record.ledger_id, -0x8000, len(record.encode()) - 4))
    assert read == shown


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_last_mark_names_a_journal_and_everything_behind_it_is_read(snapshot: str) -> None:
    mark = decode_last_mark((DB / snapshot / "ledgers/current/lastMark").read_bytes())
    assert mark is not None
    disk = real_world(1).disk
    folder = str(DB / snapshot / "journal/current")
    assert mark.file_id in journal_ids(disk, folder)
    reading = Replay(disk, folder, mark)
    rest = [(ledger, entry) for batch in reading.batches() for ledger, entry, _ in entries_of(batch)]
    if snapshot.startswith("clean"):
        assert rest == []
    else:
        assert {ledger for ledger, _ in rest} == {9}
    assert reading.dropped == []


def test_last_mark_is_what_the_originals_shell_shows() -> None:
    mark = decode_last_mark((DB / "clean/bk1/ledgers/current/lastMark").read_bytes())
    (shown,) = re.findall(r"Journal Id - (\d+)\((\w+)\.txn\), Pos - (\d+)", (DB / "shell/lastmark.out").read_text())
    assert mark == (int(shown[0]), int(shown[2]))
    assert file_id_of(f"{shown[1]}.txn") == mark[0]


@pytest.mark.parametrize("folder", ["journal", "ledgers"])
@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_version_files_are_cookies_and_are_written_back_alike(snapshot: str, folder: str) -> None:
    data = (DB / snapshot / folder / "current/VERSION").read_bytes()
    cookie = decode_cookie(data)
    name = snapshot.rpartition("/")[2]
    assert cookie.bookie_id == f"127.0.0.1:328{name[-1]}"
    assert cookie.journal_directories == (f"{name}/journal",)
    assert cookie.ledger_directories == (f"{name}/ledgers",)
    assert encode_cookie(cookie) == data


@pytest.mark.real_clock
@pytest.mark.parametrize("snapshot", SNAPSHOTS)
async def test_our_bookie_takes_over_the_folders_of_the_original(snapshot: str, tmp_path: Path) -> None:
    name = snapshot.rpartition("/")[2]
    shutil.copytree(DB / snapshot, tmp_path / name)
    cookie = decode_cookie((tmp_path / name / "journal/current/VERSION").read_bytes())
    config = BookieConfig(
        bookie_id=cookie.bookie_id,
        journal_directories=(str(tmp_path / name / "journal"),),
        ledger_directories=(str(tmp_path / name / "ledgers"),),
        root=str(tmp_path),
    )

    async def check(bookie: Bookie) -> None:
        client = Client(bookie)
        for ledger_id in EVERYWHERE:
            for entry_id in range(len(MANIFEST[ledger_id]["entries"])):
                check_entry(ledger_id, entry_id, (await client.read(ledger_id, entry_id)).entry)
        assert [ledger_id for ledger_id in EVERYWHERE if bookie.storage.is_fenced(ledger_id)] == [3]
        lac = bookie.storage.explicit_lac(2)
        assert lac is not None
        assert Digest(DigestType.HMAC, PASSWORD).open_lac(2, lac) == 5

    world = real_world(1)
    store = MemoryStore(MemoryTree())
    await store.create("/ledgers/INSTANCEID", cookie.instance_id.encode(), make_parents=True)
    await write_cookie(store, cookie, None)
    for _ in range(2):
        async with open_bookie(world, config, store) as bookie:
            await check(bookie)


# --- the wire

CONVERSATIONS = sorted(path.name for path in (GOLDEN / "wire").glob("v2-*.jsonl"))


def frames_of(name: str) -> list[tuple[int, str, bytes]]:
    """Return (connection, "client" or "bookie", frame) of version 2, in order."""
    lines = [json.loads(line) for line in (GOLDEN / "wire" / name).read_text().splitlines()]
    frames = [(line["conn"], line["dir"], bytes.fromhex(line["hex"])) for line in lines if "hex" in line]
    return [frame for frame in frames if frame[2][4] == v2.VERSION]


def encode_request(request: v2.Request) -> bytes:
    match request:
        case Run():
            records = b"".join(request.parts)
            return v2.add_head(len(records) - 4, request.key, request.flags) + records[4:]
        case v2.ReadRequest(ledger_id, entry_id, flags, key):
            return v2.read_request(ledger_id, entry_id, flags, key)
        case v2.BatchReadRequest(ledger_id, entry_id, request_id, count_max, size_max):
            return v2.batch_read_request(ledger_id, entry_id, request_id, count_max, size_max)
        case _:
            raise AssertionError(f"{request} is in no conversation")


def encode_response(response: v2.Response) -> bytes:
    match response:
        case v2.AddAcks(rc, ledger_id, first, last):
            return v2.add_responses(rc, ledger_id, range(first, last + 1))
        case v2.ReadResponse(rc, ledger_id, entry_id, entry):
            return v2.response_head(v2.Opcode.READ, rc, ledger_id, entry_id, len(entry)) + entry
        case v2.BatchResponse(rc, ledger_id, entry_id, request_id, entries):
            body = b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)
            return v2.batch_response_head(rc, ledger_id, entry_id, request_id, len(body)) + body
        case _:
            raise AssertionError(f"{response} is in no conversation")


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_frame_is_decoded_and_encoded_to_the_same_bytes(name: str) -> None:
    for _, side, frame in frames_of(name):
        if side == "client":
            (request,) = v2.decode_requests(frame)
            assert encode_request(request) == frame
        else:
            (response,) = v2.decode_responses(frame)
            assert encode_response(response) == frame


@pytest.mark.seeded
@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if frames_of(name)])
async def test_our_bookie_answers_the_conversation_with_the_same_bytes(name: str) -> None:
    async with with_bookie(config=CONFIG) as bookie:
        clients: dict[int, Client] = {}
        due: dict[int, list[bytes]] = {}
        for connection, side, frame in frames_of(name):
            client = clients.setdefault(connection, Client(bookie))
            if side == "client":
                client.send(frame)
                continue
            # Answers of one connection may overtake each other; each must come, once.
            answers = due.setdefault(connection, [])
            with trio.move_on_after(10):
                while frame not in answers:
                    answers += [encode_response(answer) for answer in await client.take()]
            assert frame in answers
            answers.remove(frame)
        for connection, client in clients.items():
            assert due[connection] == []
            assert client.answers == []


def test_there_are_conversations_of_every_kind() -> None:
    spoken = [name for name in CONVERSATIONS if frames_of(name)]
    assert len(spoken) == 8, spoken
