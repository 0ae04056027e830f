"""quire.servers.standalone.data_directory, on this machine's disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quire.servers.errors import DataDirectoryError
from quire.servers.standalone.data_directory import FORMAT_VERSION, claim
from quire.world.real import real_world
from tests.support.refusals import refuses


def test_a_new_directory_is_made_and_says_its_version(tmp_path: Path) -> None:
    root = str(tmp_path / "a" / "data")
    directory = claim(real_world().disk, root)
    assert Path(root, "FORMAT").read_bytes() == b"quire standalone %d\n" % FORMAT_VERSION
    assert directory.journal.startswith(root)
    directory.lock.release()
    claim(real_world().disk, root).lock.release()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    directory = claim(real_world().disk, str(tmp_path))
    code = (
        "import sys; from quire.servers.standalone.data_directory import claim; from quire.world.real import "
        "real_world\n"
        "claim(real_world().disk, sys.argv[1])"
    )
    second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    directory.lock.release()
    assert second.returncode == 1
    assert "DataDirectoryError" in second.stderr
    assert "is in use by another server" in second.stderr


def test_a_newer_version_is_refused_and_the_lock_given_back(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_bytes(b"quire standalone 2\n")
    with pytest.raises(
        DataDirectoryError, match="has version 2, above the 1 that this quire supports: use a newer quire"
    ):
        claim(real_world().disk, str(tmp_path))
    (tmp_path / "FORMAT").write_bytes(b"quire standalone 1\n")
    claim(real_world().disk, str(tmp_path)).lock.release()


@pytest.mark.parametrize("text", [b"", b"quire standalone 1", b"quire standalone x\n", b"something\n"])
def test_a_damaged_version_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "FORMAT").write_bytes(text)
    refuses(DataDirectoryError, lambda: claim(real_world().disk, str(tmp_path)), "is damaged")


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    refuses(DataDirectoryError, lambda: claim(real_world().disk, str(tmp_path)), "not a data directory of quire")


def test_a_crash_in_the_very_first_start_does_not_keep_the_next_one_out(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    (tmp_path / "FORMAT.tmp").write_bytes(b"quire stand")
    claim(real_world().disk, str(tmp_path)).lock.release()
    assert (tmp_path / "FORMAT").read_bytes() == b"quire standalone 1\n"
