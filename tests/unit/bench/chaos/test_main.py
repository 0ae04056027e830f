"""Arguments of scripts/chaos, on a fake cluster."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tools.chaos import __main__ as chaos
from tools.chaos import report
from tools.chaos.run import Outcome


class NoCluster:
    @classmethod
    def make(cls, *_: object, **__: object) -> NoCluster:
        return cls()

    def up(self, say: object) -> None:
        pass

    def abandon(self) -> None:
        pass


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the failures of the run, a list that the test may fill."""
    found: list[str] = []

    def nothing(*_: Any, **__: Any) -> None:
        pass

    monkeypatch.setattr(chaos, "LocalCluster", NoCluster)
    monkeypatch.setattr(chaos, "run", nothing)
    monkeypatch.setattr(report, "show", nothing)
    monkeypatch.setattr(report, "write", nothing)
    monkeypatch.setattr(Outcome, "failures", lambda self, **_: found)
    return found


def test_a_folder_that_was_named_stays_with_what_is_in_it(tmp_path: Path, failures: list[str]) -> None:
    (tmp_path / "precious").write_text("x")
    assert chaos.main(["--folder", str(tmp_path)]) == 0
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(("failed", "kept"), [(False, []), (True, ["chaos"])])
def test_a_new_folder_stays_only_if_the_run_failed(
    tmp_path: Path, failures: list[str], monkeypatch: pytest.MonkeyPatch, failed: bool, kept: list[str]
) -> None:
    made = tmp_path / "chaos"
    made.mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(made))
    failures += ["3 lost"] if failed else []
    assert chaos.main([]) == int(failed)
    assert [path.name for path in tmp_path.iterdir()] == kept
