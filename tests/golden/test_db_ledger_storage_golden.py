"""Entry logs and both indexes written by Apache BookKeeper 4.17.3 are read with the same meaning.

Three bookies' folders in two states: `clean`, stopped in good order, and `crashed`, killed. The RocksDB folders are
opened as copies, since opening changes them. `manifest.json` has the data of the writing client; `shell/*.out` is
the output of BookKeeper's own shell for bookie 1. How the data was made: tests/golden/bookkeeper/README.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_log_format import (
    Scan,
    decode_header,
    decode_last_id,
    encode_header,
    encode_last_id,
    encode_ledgers_map,
    location_text,
    log_name,
)
from bookie.db_ledger_storage.storage import DbLedgerStorage
from quire.wire.bookkeeper.entry import DIGEST_TYPES, Digest, DigestType, master_key
from quire.wire.bookkeeper.run import Run
from quire.world.real import real_world

DB = Path(__file__).parent / "bookkeeper/db"
MANIFEST: dict[int, dict[str, Any]] = {each["ledger"]: each for each in json.loads((DB / "manifest.json").read_text())}
STATES = ["clean", "crashed"]
BOOKIES = ["bk1", "bk2", "bk3"]
EVERYWHERE = [1, 2, 3, 4, 7, 8, 5_000_000_000]
"""Ledgers whose entries are on all three bookies in both states. 5 and 6 are empty; 9 was written just before the kill,
so in `crashed` only the journal has it; 0 is striped; 10 came later.
"""
BIG = 1 << 30


def current(state: str, bookie: str) -> Path:
    return DB / state / bookie / "ledgers/current"


def logs_of(state: str, bookie: str) -> EntryLogs:
    logs = EntryLogs(real_world().disk, str(current(state, bookie)))
    logs.open()
    return logs


@asynccontextmanager
async def copied(state: str, bookie: str, folder: Path) -> AsyncIterator[DbLedgerStorage]:
    """Open a copy of a bookie's folders."""
    shutil.copytree(DB / state / bookie / "ledgers", folder / bookie)
    storage = DbLedgerStorage(real_world(), str(folder / bookie))
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=BOOKIES)
def bookie(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def storage(state: str, bookie: str, tmp_path: Path) -> AsyncIterator[DbLedgerStorage]:
    async with copied(state, bookie, tmp_path) as storage:
        yield storage


def digest_of(ledger_id: int) -> Digest:
    ledger = MANIFEST[ledger_id]
    return Digest(DIGEST_TYPES[ledger["digest"]], ledger["password"].encode())


def check_entry(ledger_id: int, entry_id: int, entry: memoryview) -> None:
    """Check an entry: the digest is right, and the payload is the one that was written."""
    payload = digest_of(ledger_id).open(ledger_id, entry_id, entry)
    written = MANIFEST[ledger_id]["entries"][entry_id]
    assert written["entry"] == entry_id
    assert len(payload) == written["size"]
    if "hex" in written:
        assert payload.hex() == written["hex"]
    else:
        assert hashlib.sha256(payload).hexdigest() == written["sha256"]


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda size, offset: data[offset : offset + size]


def read_all(storage: DbLedgerStorage, ledger_id: int, first: int) -> list[int]:
    """Read from `first` on and check each entry; return the ids."""
    data = memoryview(b"".join(map(bytes, storage.reader.read_run(ledger_id, first, 100, BIG))))
    ids: list[int] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        check_entry(ledger_id, first + len(ids), data[4 : 4 + size])
        ids.append(first + len(ids))
        data = data[4 + size :]
    return ids


@pytest.mark.real_clock
async def test_every_entry_is_read_with_its_digest_and_payload(storage, state):
    ledgers = EVERYWHERE if state == "crashed" else [*EVERYWHERE, 9]
    for ledger_id in ledgers:
        last = len(MANIFEST[ledger_id]["entries"]) - 1
        assert storage.reader.last_entry_id(ledger_id) == last
        read: list[int] = []
        while len(read) <= last:  # a ledger that lies in two logs takes two reads at most
            read += read_all(storage, ledger_id, len(read))
        assert read == list(range(last + 1))
        for entry_id in range(last + 1):
            (part,) = storage.reader.read_run(ledger_id, entry_id, 1, BIG)
            check_entry(ledger_id, entry_id, memoryview(part)[4:])


@pytest.mark.real_clock
async def test_each_entry_of_the_striped_ledger_is_on_two_bookies(state, tmp_path):
    copies = dict.fromkeys(range(12), 0)
    for bookie in BOOKIES:
        async with copied(state, bookie, tmp_path) as storage:
            rows = [entry_id for entry_id in copies if storage._locations.get(0, entry_id)]
            for entry_id in rows:
                assert read_all(storage, 0, entry_id)[0] == entry_id
                copies[entry_id] += 1
    assert set(copies.values()) == {2}


@pytest.mark.real_clock
async def test_what_is_known_of_each_ledger_is_read(storage, state):
    known = sorted([0, *EVERYWHERE] if state == "crashed" else [0, *EVERYWHERE, 9])
    assert storage.ledgers() == known
    assert sorted(await storage.local_ledgers()) == known
    for ledger_id in known:
        assert storage.master_key(ledger_id) == master_key(b"golden")
        assert storage.is_fenced(ledger_id) == (ledger_id == 3)
        package = storage.explicit_lac(ledger_id)
        if "explicitLac" in MANIFEST[ledger_id]:
            assert package is not None
            assert digest_of(ledger_id).open_lac(ledger_id, package) == MANIFEST[ledger_id]["explicitLac"]
        else:
            assert package is None
        state_of = storage.ledger(ledger_id)
        assert state_of is not None
        raw = storage._ledgers._rows.get(ledger_id.to_bytes(8, "big"))
        assert state_of.encode() == raw, "and we would write the same bytes"


@pytest.mark.real_clock
@pytest.mark.parametrize("ledger_id", [0, 2, 4, 77, 5_000_000_000])
async def test_locations_are_those_that_the_original_shell_prints(ledger_id, tmp_path):
    printed = (DB / f"shell/ledger_{ledger_id}.out").read_text()
    async with copied("clean", "bk1", tmp_path) as storage:
        rows = [(entry_id, storage._locations.get(ledger_id, entry_id)) for entry_id in range(20)]
    assert "".join(f"entry {entry_id}\t:\t{location_text(each)}\n" for entry_id, each in rows if each) == printed


@pytest.mark.parametrize("name", ["readlog_0.out", "readlog_-l_3_0.out"])
def test_a_scan_finds_the_entries_that_the_original_shell_prints(name):
    pattern = r"Lid=(\d+), Eid=(\d+), ByteOffset=(\d+), EntrySize=(\d+)"
    printed = [tuple(map(int, each)) for each in re.findall(pattern, (DB / "shell" / name).read_text())]
    data = (current("clean", "bk1") / "0.log").read_bytes()
    scan = Scan(lambda size, offset: data[offset : offset + size], len(data))
    found = [(each.ledger_id, each.entry_id, each.offset, each.size) for each in scan]
    assert [each for each in found if "-l_3" not in name or each[0] == 3] == printed
    assert len(printed) >= 6
    assert scan.torn_at == -1


@pytest.mark.parametrize("log_id", [0, 1])
def test_a_ledgers_map_says_what_the_original_shell_prints(log_id):
    text = (DB / f"shell/readlogmetadata_{log_id}.out").read_text()
    printed = {
        int(ledger): int(size) for ledger, size in re.findall(r"Lid=(\d+), TotalSizeOfEntriesOfLedger=(\d+)", text)
    }
    total = re.search(r"total size: (\d+)", text)
    assert total is not None
    ledgers = dict(logs_of("clean", "bk1").contents.metadata(log_id).ledgers)
    assert ledgers == printed
    assert sum(ledgers.values()) == int(total[1])


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("bookie", BOOKIES)
def test_headers_maps_and_last_id_are_written_back_alike(state, bookie):
    folder = current(state, bookie)
    logs = logs_of(state, bookie)
    ids = logs.inactive_ids()
    assert ids == list(range(len(ids)))
    last_id = (folder / "lastId").read_bytes()
    assert encode_last_id(decode_last_id(last_id)) == last_id
    assert decode_last_id(last_id) >= ids[-1]
    for log_id in ids:
        data = (folder / log_name(log_id)).read_bytes()
        header = decode_header(data)
        assert encode_header(header) == data[:1024]
        scan = Scan(reader(data), len(data))
        sizes: dict[int, int] = {}
        for entry in scan:
            sizes[entry.ledger_id] = sizes.get(entry.ledger_id, 0) + 4 + entry.size
        assert scan.torn_at == -1
        assert dict(logs.contents.metadata(log_id).ledgers) == sizes
        if header.has_map:
            ours, theirs = encode_ledgers_map(sizes), data[header.map_offset :]
            assert ours[:24] == theirs[:24]
            assert sorted(ours[at : at + 16] for at in range(24, len(ours), 16)) == sorted(
                theirs[at : at + 16] for at in range(24, len(theirs), 16)
            ), "the same rows; theirs are not sorted"


@pytest.mark.real_clock
@pytest.mark.parametrize("state", STATES)
async def test_we_go_on_where_the_original_stopped_without_touching_its_logs(state, tmp_path):
    shutil.copytree(DB / state / "bk1/ledgers", tmp_path / "go")
    before = {path.name: path.read_bytes() for path in (tmp_path / "go/current").glob("*.log")}
    last_id = decode_last_id((tmp_path / "go/current/lastId").read_bytes())

    async def main() -> None:
        for start in range(2):
            storage = DbLedgerStorage(real_world(), str(tmp_path / "go"))
            await storage.open()
            new = 6 + start
            assert storage.reader.last_entry_id(8) == new - 1
            storage.add(Run.of(8, [(new, Digest(DigestType.DUMMY).seal(8, new, new - 1, 0, b"more") + b"more")]))
            await storage.flush()
            assert storage.reader.last_entry_id(8) == new
            assert bytes(storage.reader.read_run(8, new, 1, BIG)[0]).endswith(b"more")
            check_entry(8, 5, memoryview(storage.reader.read_run(8, 5, 1, BIG)[0])[4:])
            await storage.close()

    await main()
    after = {path.name: path.read_bytes() for path in (tmp_path / "go/current").glob("*.log")}
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == [log_name(last_id + 1), log_name(last_id + 2)]
