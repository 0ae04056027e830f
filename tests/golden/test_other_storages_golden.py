"""Folders of Apache BookKeeper with other loggers, storages and versions of the journal: read, or refused with the
remedy, which is a conversion.

    direct         DbLedgerStorage with the direct-I/O entry logger
    interleaved    InterleavedLedgerStorage, journal version 5
    sorted         SortedLedgerStorage with an index folder, journal version 4

How the data was made: bookkeeper/README.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.errors import CookieMismatchError
from bookie.interleaved.index_file import INDEX_HEADER_LENGTH, IndexHeader
from bookie.journal.format import NO_MARK
from bookie.journal.replay import Replay
from quire.cli.shell.main import run_shell
from quire.metadata.bookies import Cookie, decode_cookie, write_cookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.run import Run
from quire.world.real import real_world
from tests.unit.bookie.build import Client

STORAGES = Path(__file__).parent / "bookkeeper/storages"
DB = Path(__file__).parent / "bookkeeper/db"
FOLDER = {"direct": "direct", "interleaved": "flat", "sorted": "longh"}
VERSION = {"direct": 6, "interleaved": 5, "sorted": 4}
DIGEST = Digest(DigestType.CRC32, b"golden")


def expected(storage: str) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the written entries, by ledger and entry."""
    manifest = json.loads((STORAGES / storage / "manifest.json").read_text())
    return {(ledger["ledger"], number): entry for ledger in manifest for number, entry in enumerate(ledger["entries"])}


def check_payload(entry: dict[str, Any], payload: bytes) -> None:
    assert len(payload) == entry["size"]
    if "hex" in entry:
        assert payload.hex() == entry["hex"]
    else:
        assert hashlib.sha256(payload).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("storage", FOLDER)
def test_a_journal_of_any_version_holds_every_entry(storage: str) -> None:
    journal = STORAGES / storage / FOLDER[storage] / "journal/current"
    (file,) = journal.glob("*.txn")
    assert int.from_bytes(file.read_bytes()[4:8], "big") == VERSION[storage]
    found = {}
    reading = Replay(real_world(1).disk, str(journal), NO_MARK)
    for batch in reading.batches():
        for record in batch:
            if isinstance(record, Run):
                for entry_id in range(record.first, record.last + 1):
                    found[record.ledger_id, entry_id] = record.entry(entry_id)
    written = expected(storage)
    assert found.keys() == written.keys()
    for (ledger_id, entry_id), entry in found.items():
        check_payload(written[ledger_id, entry_id], bytes(DIGEST.open(ledger_id, entry_id, entry)))


def copied(storage: str, folder: Path) -> None:
    """Copy the folders of a bookie, and its configuration, which names them relative to the working directory."""
    name = FOLDER[storage]
    shutil.copytree(STORAGES / storage / name, folder / name)
    shutil.copy(STORAGES / storage / f"{name}.conf", folder / "bk_server.conf")


def shell(*words: str) -> tuple[int, str, str]:
    """Run `quire shell` in the working directory; return the exit code, the output and the errors."""
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(["-conf", "bk_server.conf", *words], out=out, err=err, environment={})
    return code, out.getvalue(), err.getvalue()


@asynccontextmanager
async def opened(storage: str, folder: Path) -> AsyncIterator[Bookie]:
    """Start Quire's bookie on copied folders, registered in its cluster."""
    name = FOLDER[storage]
    cookie: Cookie = decode_cookie((folder / name / "journal/current/VERSION").read_bytes())
    config = BookieConfig(
        bookie_id=cookie.bookie_id,
        journal_directories=(str(folder / name / "journal"),),
        ledger_directories=(str(folder / name / "ledgers"),),
        index_directories=(str(folder / name / "index"),) if cookie.index_directories else (),
        root=str(folder),
    )

    world, store = real_world(1), MemoryStore(MemoryTree())
    await store.create("/ledgers/INSTANCEID", cookie.instance_id.encode(), make_parents=True)
    await write_cookie(store, cookie, None)
    async with open_bookie(world, config, store) as bookie:
        yield bookie


@pytest.mark.real_clock
async def test_what_the_direct_logger_wrote_is_served_from_its_log(tmp_path: Path) -> None:
    copied("direct", tmp_path)
    async with opened("direct", tmp_path) as bookie:
        client = Client(bookie)
        for (ledger_id, entry_id), entry in expected("direct").items():
            answer = await client.read(ledger_id, entry_id)
            check_payload(entry, bytes(DIGEST.open(ledger_id, entry_id, answer.entry)))
        assert bookie.storage.stats.disk_reads > 0


@pytest.mark.real_clock
@pytest.mark.parametrize("storage", ["interleaved", "sorted"])
async def test_folders_of_other_storages_are_refused_with_the_remedy(storage: str, tmp_path: Path) -> None:
    copied(storage, tmp_path)
    with pytest.raises(CookieMismatchError, match=r"quire shell -conf bk_server\.conf convert-to-db-storage"):
        await opened(storage, tmp_path).__aenter__()
    name = FOLDER[storage]
    before = {path.relative_to(STORAGES / storage): path.read_bytes() for path in _files(STORAGES / storage / name)}
    after = {path.relative_to(tmp_path): path.read_bytes() for path in _files(tmp_path / name)}
    assert {path: after.get(path) for path in before} == before, "nothing of it is changed"


@pytest.mark.parametrize("storage", ["interleaved", "sorted"])
def test_converted_folders_have_a_row_for_every_entry_and_none_too_many(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copied(storage, tmp_path)
    written = expected(storage)
    code, out, err = shell("convert-to-db-storage")
    ledgers = {ledger_id for ledger_id, _ in written}
    assert (code, out) == (0, "=== Converting to DbLedgerStorage ===\n---- Done Converting ----\n")
    assert err == f"{len(ledgers)} ledgers, {len(written)} entries\n"
    assert not list(tmp_path.rglob("*.idx"))
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and not any(path.iterdir())], "no empty folder"
    checked = shell("localconsistencycheck", "-json")
    assert (checked[0], json.loads(checked[1])) == (0, {"passed": True, "entries": len(written)})
    found = {}
    for ledger_id in ledgers:
        for line in shell("ledger", str(ledger_id), "-json")[1].splitlines():
            found[ledger_id, json.loads(line)["entryId"]] = line
    assert found.keys() == written.keys()


@pytest.mark.parametrize("storage", ["interleaved", "sorted"])
def test_a_bookie_serves_converted_folders(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copied(storage, tmp_path)
    assert shell("convert-to-db-storage")[0] == 0
    name = FOLDER[storage]
    # Without its journal all of it comes from the index.
    for path in (tmp_path / name / "journal/current").glob("*.txn"):
        path.unlink()
    (tmp_path / name / "ledgers/current/lastMark").unlink()
    trio.run(_all_is_read, storage, tmp_path)


async def _all_is_read(storage: str, folder: Path) -> None:
    async with opened(storage, folder) as bookie:
        client = Client(bookie)
        for (ledger_id, entry_id), entry in expected(storage).items():
            answer = await client.read(ledger_id, entry_id)
            check_payload(entry, bytes(DIGEST.open(ledger_id, entry_id, answer.entry)))


@pytest.mark.parametrize("storage", ["interleaved", "sorted"])
def test_there_and_back_are_the_bytes_of_the_original(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the zeros at their ends, and the version: these were written in version 0, without a field for LACs."""
    monkeypatch.chdir(tmp_path)
    copied(storage, tmp_path)
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.idx"))}
    assert shell("convert-to-db-storage")[0] == 0
    assert shell("convert-to-interleaved-storage")[0] == 0
    after = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.idx"))}
    assert before.keys() == after.keys()
    for path, data in after.items():
        assert (data[:7] + b"\0" + data[8:]).rstrip(b"\0") == before[path].rstrip(b"\0")
    indexes = next(iter(before)).parents[2]
    assert {"ledgers.backup", "locations.backup"} <= {path.name for path in indexes.iterdir()}
    code, out, _ = shell("convert-to-interleaved-storage")
    assert (code, out.splitlines()[-1]) == (0, "---- Done Converting 0 ledgers ----")
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.idx"))} == after


def test_index_files_are_those_that_the_original_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger 2 has an explicit LAC, which the original loses."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DB / "clean/bk1", tmp_path / "bk1")
    shutil.copy(DB / "bk1.conf", tmp_path / "bk_server.conf")
    assert shell("convert-to-interleaved-storage")[0] == 0
    current = tmp_path / "bk1/ledgers/current"
    ours = {str(path.relative_to(current)): path.read_bytes() for path in current.rglob("*.idx")}
    theirs = json.loads((DB / "bk1.idx.json").read_text())
    assert ours.keys() == theirs.keys()
    for name, data in ours.items():
        assert len(data) == 9216
        header = IndexHeader.decode(data)
        assert (header.explicit_lac is not None) == (name == "0/2/2.idx")
        plain = replace(header, explicit_lac=None).encode() + data[INDEX_HEADER_LENGTH:]
        assert plain.rstrip(b"\0").hex() == theirs[name]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
