"""tools.demo.__main__"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.demo.__main__ import main, tracked


def test_only_what_git_tracks_is_taken_of_a_checkout(tmp_path: Path) -> None:
    for name in ("kept", "left"):
        (tmp_path / name).write_bytes(b"x")
    try:
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    except FileNotFoundError:
        assert tracked(os.fsencode(tmp_path)) == [b"kept", b"left"]
        return
    subprocess.run(["git", "add", "kept"], cwd=tmp_path, check=True)
    assert tracked(os.fsencode(tmp_path)) == [b"kept"]


def test_a_tree_that_git_does_not_know_is_taken_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"x")
    assert tracked(os.fsencode(tmp_path / "tree")) == [b"file"]


def test_what_is_no_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_help_has_the_form_of_the_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: scripts/demo [OPTIONS] [DIR]" in shown
    for option in ("--cluster", "--keep", "--no-spark"):
        assert option in shown


def test_an_unknown_option_is_refused_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kep"]) == 2
    refused = capsys.readouterr().err
    assert "No such option: --kep" in refused
    assert "--keep" in refused
