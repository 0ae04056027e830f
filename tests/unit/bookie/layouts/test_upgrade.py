"""Older layouts of a bookie's directories, upgraded and back, killed at every step: bookie/layouts.

The command with the cluster is that of quire/cli/upgrade.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bookie.config import BookieConfig
from bookie.errors import DirectoryInUseError
from bookie.folders import cookie_of
from bookie.layouts.detect import DirectoryLayout, LayoutError, detect
from quire.cli.upgrade.command import Upgrader
from quire.metadata.bookies import decode_cookie, encode_cookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.doors import World
from quire.world.real import real_world
from tests.support.killing import Killed, killable

FILES = {
    "journal": {"1.txn": b"journal", "lastMark": b"mark"},
    "ledgers": {"0.log": b"log", "lastId": b"0\n", "lastMark": b"mark", "0/1/1.idx": b"index", "1f/2/1f02.idx": b"2"},
}
INSTANCE = "7d9c2f52-6f6f-4f5b-9a3c-0123456789ab"
PATH = "/ledgers/cookies/b:1"
HIDDEN = ("VERSION", "VERSION.before", "quire.lock", "notes.txt")


class Old:
    """Directories of a bookie in an older layout, and its cluster."""

    def __init__(self, root: Path, version: int) -> None:
        self.root = root
        self.version = version
        self.tree = MemoryTree()
        self.config = BookieConfig(
            bookie_id="b:1",
            journal_directories=(str(root / "journal"),),
            ledger_directories=(str(root / "ledgers"),),
        )
        for name, files in FILES.items():
            for file, data in files.items():
                path = root / name / ("current" if version > 2 else ".") / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            (root / name / "notes.txt").write_text("not of the bookie")
            if version == 2:
                (root / name / "VERSION").write_text("2\n")
            elif version > 2:
                (root / name / "current/VERSION").write_bytes(self.old_cookie())

    def old_cookie(self) -> bytes:
        if self.version == 3:
            return f"3\nb:1\n{self.root}/journal\n1\t{self.root}/ledgers\n".encode()
        cookie = replace(cookie_of(self.config, ""), index_directories=None)
        return encode_cookie(cookie).replace(b"5\n", b"4\n", 1)

    async def prepare(self) -> None:
        store = MemoryStore(self.tree)
        await store.create("/ledgers/INSTANCEID", INSTANCE.encode(), make_parents=True)
        if self.version > 2:
            await store.create(PATH, self.old_cookie(), make_parents=True)

    async def step(self, step: str, world: World | None = None, *, force: bool = False) -> str:
        out = io.StringIO()
        upgrader = Upgrader(world=world or real_world(), config=self.config, store=MemoryStore(self.tree), out=out)
        await upgrader.run(step, force=force)
        return out.getvalue()

    async def stored(self) -> bytes | None:
        node = await MemoryStore(self.tree).get(PATH)
        return None if node is None else node.value

    def contents(self, *, current: bool) -> dict[str, bytes]:
        """Return the bookie's files in `current`, or beside it, without cookies and locks."""
        found: dict[str, bytes] = {}
        for name in FILES:
            base = self.root / name / "current" if current else self.root / name
            for path in base.rglob("*") if base.exists() else ():
                relative = str(path.relative_to(base))
                elsewhere = relative.startswith(("current/", "upgradeTmp/", "rollbackTmp/"))
                if path.is_file() and not elsewhere and path.name not in HIDDEN:
                    found[f"{name}/{relative}"] = path.read_bytes()
        return found

    async def check_upgraded(self) -> None:
        expected = cookie_of(self.config, INSTANCE)
        assert self.contents(current=True) == ALL
        for name in FILES:
            assert decode_cookie((self.root / name / "current/VERSION").read_bytes()) == expected
        stored = await self.stored()
        assert stored is not None
        assert decode_cookie(stored) == expected
        assert not list(self.root.rglob("*Tmp*"))

    async def check_old(self) -> None:
        """Check that all is as it was made."""
        assert self.contents(current=self.version > 2) == ALL
        assert await self.stored() == (self.old_cookie() if self.version > 2 else None)
        for name in FILES:
            folder = self.root / name
            assert detect(real_world().disk, str(folder)).needs_upgrade
            assert (folder / "current").exists() == (self.version > 2)
            assert (folder / "VERSION").exists() == (self.version == 2)
            if self.version > 2:
                assert (folder / "current/VERSION").read_bytes() == self.old_cookie()
                assert not (folder / "current/VERSION.before").exists()
        assert not list(self.root.rglob("*Tmp*"))


ALL = {f"{name}/{file}": data for name, files in FILES.items() for file, data in files.items()}


@pytest.fixture(autouse=True)
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each of some hundred steps the look through all processes of the machine."""
    monkeypatch.setattr("quire.cli.upgrade.command.user_of", lambda folders, host, port: "")


VERSIONS = pytest.mark.parametrize("version", [1, 2, 3, 4])


async def made(root: Path, version: int) -> Old:
    old = Old(root, version)
    await old.prepare()
    return old


@VERSIONS
async def test_an_upgrade_leads_to_the_present_layout_and_back(version: int, tmp_path: Path) -> None:
    old = await made(tmp_path, version)
    told = await old.step("upgrade")
    assert f"from layout {version}" in told
    assert "convert-to-db-storage" in told
    await old.check_upgraded()
    await old.step("upgrade")
    await old.check_upgraded()
    await old.step("rollback")
    await old.check_old()
    await old.step("upgrade")
    await old.step("finalize")
    await old.check_upgraded()
    for name in FILES:
        assert detect(real_world().disk, str(tmp_path / name)) == DirectoryLayout(5, 0)
        assert (tmp_path / name / "notes.txt").exists()
    assert "nothing to upgrade" in await old.step("upgrade")
    assert "no upgrade to finalize" in await old.step("finalize")


@VERSIONS
@pytest.mark.parametrize("step", ["upgrade", "rollback", "finalize"])
async def test_a_step_that_is_killed_anywhere_is_finished_by_the_next_call(
    step: str, version: int, tmp_path: Path
) -> None:
    for changes in range(200):
        old = await made(tmp_path / str(changes), version)
        if step != "upgrade":
            await old.step("upgrade")
        killed = False
        try:
            await old.step(step, killable(real_world(), changes))
        except Killed:
            killed = True
            # What a rollback has renamed, to be removed, is still there under its old names.
            assert old.contents(current=True) | old.contents(current=False) == ALL
            await old.step(step)
        if step == "rollback":
            await old.check_old()
        else:
            await old.check_upgraded()
        if step == "finalize" and version < 3:
            assert old.contents(current=False) == {}
        if not killed:
            assert changes > 1, "it has that many steps"
            return
    raise AssertionError("the step never came to its end")


@VERSIONS
async def test_a_cluster_that_fails_after_the_directories_is_brought_up_to_date(version: int, tmp_path: Path) -> None:
    old = await made(tmp_path, version)
    before = await old.stored()
    await old.step("upgrade")
    store = MemoryStore(old.tree)
    if before is None:
        await store.delete(PATH)
    else:
        await store.put(PATH, before, -1)
    if before is None:
        with pytest.raises(LayoutError, match="the upgrade was not finished"):
            await old.step("finalize")
    await old.step("upgrade")
    await old.check_upgraded()


async def test_directories_that_were_never_upgraded_are_not_rolled_back(tmp_path: Path) -> None:
    """The original removes all data here."""
    old = await made(tmp_path, 1)
    await old.step("upgrade")
    await old.step("finalize")
    with pytest.raises(LayoutError, match="never upgraded"):
        await old.step("rollback")
    await old.check_upgraded()


async def test_a_rollback_after_the_bookie_has_run_is_refused(tmp_path: Path) -> None:
    old = await made(tmp_path, 1)
    await old.step("upgrade")
    (tmp_path / "journal/current/2.txn").write_bytes(b"acknowledged")
    with pytest.raises(LayoutError, match=r"has 2\.txn, which the bookie wrote after the upgrade"):
        await old.step("rollback")
    assert (tmp_path / "journal/current/2.txn").exists()
    await old.step("rollback", force=True)
    await old.check_old()


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "quire.lock"}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda root: (root / "ledgers/VERSION").write_text("7\n"), "has version 7"),
        (lambda root: (root / "ledgers/VERSION").write_text("x\n"), "has no version"),
        (lambda root: (root / "ledgers/current").mkdir() or (root / "ledgers/current/9.log").touch(), "no cookie"),
        (lambda root: [path.unlink() for path in (root / "journal").iterdir()], "is it mounted"),
    ],
)
async def test_directories_that_cannot_be_upgraded_are_left_alone(
    spoil: Callable[[Path], object], why: str, tmp_path: Path
) -> None:
    old = await made(tmp_path, 1)
    spoil(tmp_path)
    before = files(tmp_path)
    with pytest.raises(LayoutError, match=why):
        await old.step("upgrade")
    assert files(tmp_path) == before
    assert await old.stored() is None


async def test_the_cookie_of_another_bookie_is_not_replaced(tmp_path: Path) -> None:
    old = await made(tmp_path, 1)
    other = replace(cookie_of(old.config, INSTANCE), ledger_directories=("/elsewhere",))
    await MemoryStore(old.tree).create(PATH, encode_cookie(other), make_parents=True)
    with pytest.raises(LayoutError, match="names other directories"):
        await old.step("upgrade")


async def test_a_running_bookie_is_left_alone(tmp_path: Path) -> None:
    old = await made(tmp_path, 1)
    lock = real_world().disk.lock(str(tmp_path / "ledgers/quire.lock"))
    with pytest.raises(BlockingIOError):
        await old.step("upgrade")
    lock.release()


async def test_directories_that_a_bookie_of_the_original_uses_are_left_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("quire.cli.upgrade.command.user_of", lambda folders, host, port: "process 7 (java) has x open")
    old = Old(tmp_path, 1)
    await old.prepare()
    before = old.contents(current=False)
    with pytest.raises(DirectoryInUseError, match=r"process 7 .* stop it first"):
        await old.step("upgrade")
    assert old.contents(current=False) == before
