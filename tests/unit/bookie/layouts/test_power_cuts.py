"""Power cuts at each step of upgrade, rollback and finalize of a bookie's directories: bookie/layouts/upgrade.py.

A cut may undo what was not synced: names of files, their contents, and folders that were renamed.
"""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import pytest

from bookie.config import BookieConfig
from bookie.folders import cookie_of
from bookie.layouts.detect import detect
from quire.cli.upgrade.command import Upgrader
from quire.metadata.bookies import decode_cookie, encode_cookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from simulation.machines.host import Host
from simulation.machines.power import PowerCut
from simulation.machines.world import Universe, run
from tests.unit.bookie.build import JOURNAL, LEDGERS
from tests.unit.bookie.machine import Machine

FILES = {
    "/data/journal": {"1.txn": b"journal", "lastMark": b"mark"},
    "/data/ledgers": {"0.log": b"log" * 500, "lastId": b"0\n", "lastMark": b"mark", "0/1/1.idx": b"index"},
}
ALL = {f"{folder}/{name}": data for folder, files in FILES.items() for name, data in files.items()}
CONFIG = BookieConfig(bookie_id="b:1", journal_directories=("/data/journal",), ledger_directories=("/data/ledgers",))
INSTANCE = "7d9c2f52-6f6f-4f5b-9a3c-0123456789ab"
STEPS_MAX = 120
DRAWS = 3
"""Power cuts at the same step, which leave different parts of what was not synced."""
VERSIONS = (1, 2, 3, 4)


@pytest.fixture(autouse=True)
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each step the look through all processes of the machine."""
    monkeypatch.setattr("quire.cli.upgrade.command.user_of", lambda folders, host, port: "")


def old_cookie(config: BookieConfig, version: int, instance_id: str = "") -> bytes:
    if version == 3:
        return b"3\nb:1\n/data/journal\n1\t/data/ledgers\n"
    return encode_cookie(replace(cookie_of(config, instance_id), index_directories=None)).replace(b"5\n", b"4\n", 1)


class OldBookie:
    """A bookie on a simulated machine whose directories have an older layout, all of it durable."""

    def __init__(self, seed: int, version: int) -> None:
        self.host: Host = Universe(seed).host("bookie")
        self.tree = MemoryTree()
        self.version = version

    async def prepare(self) -> None:
        disk, store = self.host.world().disk, MemoryStore(self.tree)
        for folder, files in FILES.items():
            for name, data in files.items():
                path = f"{folder}/current/{name}" if self.version > 2 else f"{folder}/{name}"
                disk.make_dirs(path.rpartition("/")[0])
                disk.write_atomic(path, data)
            if self.version == 2:
                disk.write_atomic(f"{folder}/VERSION", b"2\n")
            elif self.version > 2:
                disk.write_atomic(f"{folder}/current/VERSION", old_cookie(CONFIG, self.version))
        self.host.end()
        await store.create("/ledgers/INSTANCEID", INSTANCE.encode(), make_parents=True)
        if self.version > 2:
            await store.create("/ledgers/cookies/b:1", old_cookie(CONFIG, self.version), make_parents=True)

    async def step(self, step: str, cut_after: int | None = None) -> bool:
        """Take a step, and cut the power at its end, or after so many changes; return whether it came to its end."""
        return await stepped(self.host, self.tree, CONFIG, step, cut_after)

    def found(self, *, current: bool | None = None) -> dict[str, bytes]:
        """Return the bookie's files in `current`, or beside it; None: in either place."""
        found: dict[str, bytes] = {}
        for path in self.host.disk.paths():
            inside = "/current/" in path
            name = path.replace("/current/", "/")
            if name in ALL and current in (None, inside):
                found[name] = self.host.disk.read(path)
        return found

    async def is_upgraded(self) -> None:
        assert self.found(current=True) == ALL
        for folder in FILES:
            assert decode_cookie(self.host.disk.read(f"{folder}/current/VERSION")) == cookie_of(CONFIG, INSTANCE)
        self.has_no_other_folders()

    async def is_old(self) -> None:
        assert self.found(current=self.version > 2) == ALL
        assert self.found(current=self.version < 3) == {}
        for folder in FILES:
            assert detect(self.host.world().disk, folder).needs_upgrade
            self.host.end()
        self.has_no_other_folders()

    def has_no_other_folders(self) -> None:
        assert not [each for each in self.host.disk.names if each.endswith("Tmp")]


async def stepped(host: Host, tree: MemoryTree, config: BookieConfig, step: str, cut_after: int | None) -> bool:
    upgrader = Upgrader(world=host.world(), config=config, store=MemoryStore(tree), out=io.StringIO())
    if cut_after is not None:
        host.crash_after(cut_after)
    try:
        await upgrader.run(step)
    except PowerCut:
        return False
    host.cut_power()
    return True


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("step", ["upgrade", "rollback", "finalize"])
async def test_a_step_cut_anywhere_is_finished_by_the_next_call_and_stays_so(step: str, version: int) -> None:
    for cut_after in range(STEPS_MAX):
        ends = [await is_finished_after_a_cut(step, version, cut_after, draw) for draw in range(DRAWS)]
        if all(ends):
            assert cut_after > 3, "it has that many steps"
            return
    raise AssertionError("the step never came to its end")


async def is_finished_after_a_cut(step: str, version: int, cut_after: int, draw: int) -> bool:
    """Check that a step with a power cut loses nothing, and is finished; return whether it came to its end before."""
    old = OldBookie(1000 * draw + cut_after, version)
    await old.prepare()
    if step != "upgrade":
        assert await old.step("upgrade")
    finished = await old.step(step, cut_after)
    assert old.found() == ALL
    if not finished:
        assert await old.step(step)
    if step == "rollback":
        await old.is_old()
    else:
        await old.is_upgraded()
    if step == "finalize" and version < 3:
        assert old.found(current=False) == {}
    return finished


@pytest.mark.parametrize("step", ["upgrade", "rollback", "finalize"])
def test_all_entries_are_read_after_a_step_that_was_cut_anywhere(step: str) -> None:
    """A bookie of layout 4 with entries in its log and others in its journal alone."""
    for cut_after in range(STEPS_MAX):
        if run(cut_after, partial(entries_outlive, step=step, cut_after=cut_after)):
            assert cut_after > 3, "it has that many steps"
            return
    raise AssertionError("the step never came to its end")


async def entries_outlive(universe: Universe, *, step: str, cut_after: int) -> bool:
    """Check that a bookie has its entries after a step with a power cut; return whether the step came before it."""
    machine = Machine(universe)
    async with machine.life() as (bookie, client):
        await client.add(7, 0, 5)
        await bookie.checkpoint()
    async with machine.life(crash=True) as (_, client):
        await client.add(7, 5, 3)
    await to_layout_4(machine)
    take = partial(stepped, machine.host, machine.tree, machine.config)
    if step != "upgrade":
        assert await take("upgrade", None)
    finished = await take(step, cut_after)
    if not finished:
        assert await take(step, None)
    if step == "rollback":
        assert await take("upgrade", None)
    async with machine.life() as (_, client):
        await client.holds(7, range(8))
    return finished


async def to_layout_4(machine: Machine) -> None:
    """Give the bookie's directories and the cluster the cookie of layout 4."""
    store = MemoryStore(machine.tree)
    path = f"/ledgers/cookies/{machine.config.id}"
    node = await store.get(path)
    assert node is not None
    cookie = old_cookie(machine.config, 4, decode_cookie(node.value).instance_id)
    disk = machine.host.world().disk
    for folder in (JOURNAL, LEDGERS):
        disk.write_atomic(f"{folder}/VERSION", cookie)
    machine.host.end()
    await store.put(path, cookie, node.version)
