"""The result of `scripts/test` is that of all its runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Stands for Python: it ends as the file named after the run says.
PYTHON = """#!/usr/bin/env bash
case " $* " in
  *" --ignore "*) exit "$(cat others)" ;;
  *tests/unit/bookie*) exit "$(cat unit)" ;;
  *tests/spark*) exit "$(cat spark)" ;;
  *" --ignore-glob "*) exit "$(cat cluster-2)" ;;
  *tests/cluster/test_a*) exit "$(cat cluster)" ;;
  *tests/conformance*) exit "$(cat conformance)" ;;
  *tests/browser*) exit "$(cat browser)" ;;
  *tests/simulation*) exit "$(cat simulation)" ;;
esac
exit 99
"""


RUNS = ("others", "unit", "spark", "cluster", "cluster-2", "conformance", "browser", "simulation")


@pytest.mark.parametrize("failing", [(), *((run,) for run in RUNS), RUNS], ids=" ".join)
def test_the_exit_code_is_that_of_the_tests(tmp_path: Path, failing: tuple[str, ...]) -> None:
    scripts = tmp_path / "scripts"
    python = tmp_path / ".venv" / "bin" / "python"
    scripts.mkdir()
    python.parent.mkdir(parents=True)
    (tmp_path / "tests" / "cluster").mkdir(parents=True)
    (tmp_path / "tests" / "cluster" / "test_a.py").touch()
    (tmp_path / "tests" / "unit" / "bookie").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", scripts)
    for other in ("setup", "debian-packages"):
        (scripts / other).write_text("#!/bin/sh\n")
        (scripts / other).chmod(0o755)
    python.write_text(PYTHON)
    python.chmod(0o755)
    for run in RUNS:
        (tmp_path / run).write_text("1" if run in failing else "0")
    ran = subprocess.run(["bash", scripts / "test"], cwd=tmp_path, timeout=60, check=False)
    assert (ran.returncode != 0) == bool(failing)
