"""Folders of Apache BookKeeper with other loggers, storages and versions of the journal: read, or refused with the
remedy.

    direct         DbLedgerStorage with the direct-I/O entry logger
    interleaved    InterleavedLedgerStorage, journal version 5
    sorted         SortedLedgerStorage with an index folder, journal version 4

How the data was made: bookkeeper/README.md.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.errors import CookieMismatchError
from bookie.journal.format import NO_MARK
from bookie.journal.replay import Replay
from quire.metadata.bookies import Cookie, decode_cookie, write_cookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.run import Run
from quire.world.real import real_world
from tests.unit.bookie.build import Client

STORAGES = Path(__file__).parent / "bookkeeper/storages"
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


@asynccontextmanager
async def opened(storage: str, folder: Path) -> AsyncIterator[Bookie]:
    """Start Quire's bookie on a copy of the folders, registered in its cluster."""
    name = FOLDER[storage]
    shutil.copytree(STORAGES / storage / name, folder / name)
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
    async with opened("direct", tmp_path) as bookie:
        client = Client(bookie)
        for (ledger_id, entry_id), entry in expected("direct").items():
            answer = await client.read(ledger_id, entry_id)
            check_payload(entry, bytes(DIGEST.open(ledger_id, entry_id, answer.entry)))
        assert bookie.storage.stats.disk_reads > 0


@pytest.mark.real_clock
@pytest.mark.parametrize("storage", ["interleaved", "sorted"])
async def test_folders_of_other_storages_are_refused_with_the_remedy(storage: str, tmp_path: Path) -> None:
    with pytest.raises(CookieMismatchError, match="convert-to-db-storage"):
        await opened(storage, tmp_path).__aenter__()
    name = FOLDER[storage]
    before = {path.relative_to(STORAGES / storage): path.read_bytes() for path in _files(STORAGES / storage / name)}
    after = {path.relative_to(tmp_path): path.read_bytes() for path in _files(tmp_path / name)}
    assert {path: after.get(path) for path in before} == before, "nothing of it is changed"


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
