"""tests/conftest.py: no test passes over an ERROR that it did not announce."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import pytest
from quire.service.log import get_logger

log = get_logger("guarded")

def test_silent(): log.warning("mended")
def test_unannounced(): log.error("journal cannot be written")
def test_announced(expect_error):
    expect_error("journal cannot")
    log.error("journal cannot be written")
@pytest.mark.expect_error("journal cannot")
def test_marked(): log.error("journal cannot be written")
def test_another(expect_error):
    expect_error("disk full")
    log.error("journal cannot be written")
@pytest.mark.expect_error("journal cannot")
def test_missing(): pass
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return PASSED, FAILED or ERROR (a fixture that failed afterwards), by test name."""
    folder = tmp_path_factory.mktemp("guard")
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_guarded.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "--tb=no",
        "--rootdir",
        str(folder),
        "-c",
        "/dev/null",
        str(folder),
    ]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found: dict[str, str] = {}
    for line in shown.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            name = rest.partition("::")[2].split(" ")[0]
            found[name] = outcome if outcome != "PASSED" or name not in found else found[name]
    return found


@pytest.mark.parametrize("name", ["test_silent", "test_announced", "test_marked"])
def test_what_is_announced_or_no_error_passes(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == "PASSED"


@pytest.mark.parametrize("name", ["test_unannounced", "test_another", "test_missing"])
def test_an_error_not_announced_or_announced_and_missing_fails(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] in ("ERROR", "FAILED")
