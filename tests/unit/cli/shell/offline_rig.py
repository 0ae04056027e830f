"""Folders that a bookie of Apache BookKeeper 4.17.3 wrote, and a shell on them."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from quire.cli.shell.main import run_shell
from quire.world.real_look import look_into
from tests.unit.cli.shell.build import Ran

DB = Path(__file__).parents[3] / "golden/bookkeeper/db"
CURRENT = Path("bk1/ledgers/current")


@pytest.fixture(name="bookie_folders")
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a copy of a bookie's folders and its configuration."""
    shutil.copytree(DB / "clean/bk1", tmp_path / "bk1")
    shutil.copy(DB / "bk1.conf", tmp_path / "bk1.conf")
    monkeypatch.chdir(tmp_path)


def shell(*words: str, answers: str = "") -> Ran:
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(["-conf", "bk1.conf", *words], out=out, err=err, stdin=io.StringIO(answers), environment={})
    return Ran(code, out.getvalue(), err.getvalue())


def rows(name: str) -> dict[bytes, bytes]:
    found = look_into(str(CURRENT / name))
    try:
        return dict(found.scan(bytes(8), b"\x80"))
    finally:
        found.close()


def contents() -> dict[str, bytes]:
    """Return all files but the locks, which are made to hold them."""
    files = [path for path in Path("bk1").rglob("*") if path.is_file() and path.name != "quire.lock"]
    return {str(path): path.read_bytes() for path in files}
