"""One bit that flips in any file of a bookie: its folders, the flip, and what is found afterwards. For
test_flipped_bits.py.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.errors import BookieError
from bookie.scrubber.scrubber import Scrubber
from quire.metadata.errors import MetadataError
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import LedgerManager, SequenceLedgerIds
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper.errors import DigestMismatchError
from quire.wire.bookkeeper.v2 import Rc
from quire.world.real import real_world
from simulation.machines.damage import SeenStore
from tests.support.waiting import until
from tests.unit.bookie.build import CONFIG, DIGEST, Client, entry, opened

OLD, NEW = range(20), range(20, 30)
"""Entries in the entry logs, and those that only the journal of a killed bookie has."""
LEDGERS = 3
FENCED = 1
REFUSED, DAMAGED, MAP, HARMLESS = "the start is refused", "entries are damaged", "a log's map is damaged", "harmless"
"""Outcomes that are right."""


class Image:
    """Folders of a stopped and of a killed bookie, and their metadata."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.kept = folder / "kept"
        self.tree = MemoryTree()
        self.ledgers: list[int] = []
        self.config: BookieConfig = replace(
            CONFIG,
            journal_directories=(str(self.folder / "journal"),),
            ledger_directories=(str(self.folder / "ledgers"),),
            scrub_rate=1_000_000,
            disk_reserve_mb=0,
        )

    def keep(self, name: str) -> None:
        shutil.copytree(self.folder, self.kept / name)

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept / name, self.folder)


async def make_image(folder: Path) -> Image:
    """Run a bookie, and keep its folders as a kill leaves them, and as a stop does."""
    made = Image(folder)
    world = real_world(1)
    async with opened(world, made.tree, made.config) as bookie:
        store = MemoryStore(made.tree)
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=world.rng)
        client = Client(bookie)
        for _ in range(LEDGERS):
            metadata = LedgerMetadata(
                ensemble_size=1,
                write_quorum=1,
                ack_quorum=1,
                fragments=(Fragment(0, (made.config.id,)),),
                password=b"secret",
            )
            made.ledgers.append((await manager.create(metadata))[0])
            await client.add(made.ledgers[-1], OLD[0], len(OLD))
        await client.fence(made.ledgers[FENCED])
        await bookie.checkpoint()
        bookie.storage.end_log_later()
        for ledger_id in made.ledgers:
            if ledger_id != made.ledgers[FENCED]:
                await client.add(ledger_id, NEW[0], len(NEW))
        made.keep("killed")
    made.keep("stopped")
    return made


def flip(folder: Path, rng: random.Random) -> str:
    """Flip a bit of one file, up to its last byte that is not zero; return what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    own = [path for path in files if path.parent.name == "current"]  # the others are of RocksDB
    path = rng.choice(own if rng.random() < 0.6 else files)
    data = bytearray(path.read_bytes())
    at = rng.randrange(max(1, len(data.rstrip(b"\0"))))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"{path.relative_to(folder)}: a bit of byte {at}"


async def outcome(image: Image, bookie: Bookie, done: str) -> str:
    """Read everything, as a client does that verifies digests, and scrub; return what was found."""
    client, errors = Client(bookie), set()
    for ledger_id in image.ledgers:
        fenced = ledger_id == image.ledgers[FENCED]
        assert not fenced or bookie.storage.is_fenced(ledger_id), f"{done}: the fence is forgotten"
        for entry_id in OLD if fenced else [*OLD, *NEW]:
            found = await client.read(ledger_id, entry_id)
            if found.rc == Rc.OK and bytes(found.entry) == entry(ledger_id, entry_id):
                continue
            errors.add((ledger_id, entry_id))
            if found.rc == Rc.OK:
                with pytest.raises(DigestMismatchError):
                    DIGEST.open(ledger_id, entry_id, memoryview(found.entry))
            else:
                assert found.rc == Rc.IO, f"{done}: entry {ledger_id}:{entry_id} is answered with {found.rc!r}"
    await bookie.checkpoint()
    scrubber = Scrubber(bookie, MemoryStore(image.tree), None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber.run)
        scrubber.ask()
        await until(lambda: scrubber.counts.rounds, within=60)
        nursery.cancel_scope.cancel()
    record = scrubber.records[0]
    seen = {(ledger_id, entry_id) for ledger_id, each in record.damages.items() for entry_id in each}
    assert errors <= seen, f"{done}: the scrub has not found {sorted(errors - seen)}"
    if errors:
        return DAMAGED
    return MAP if record.damaged_logs else HARMLESS


async def outcome_of(image: Image, seed: int) -> str:
    """Flip the bit of a seed, and start the bookie; return the outcome, which may be a wrong one.

    Raises AssertionError and pytest's Failed: damage is delivered, or an entry or a fence is silently lost."""
    rng = random.Random(seed)
    image.put_back(rng.choice(("killed", "stopped")))
    done = flip(image.folder, rng)
    try:
        async with open_bookie(real_world(seed), image.config, SeenStore(image.tree)) as bookie:
            return await outcome(image, bookie, done)
    except (BookieError, MetadataError, OSError) as error:
        return REFUSED if str(error) else f"without a reason: {type(error).__name__}"
