"""`scripts/test` answers how the tests went: all of its runs, and nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Stands for Python: it ends as the file named after the run says.
PYTHON = """#!/usr/bin/env bash
case " $* " in
  *" --ignore "*) exit "$(cat others)" ;;
  *tests/spark*) exit "$(cat spark)" ;;
  *tests/cluster*) exit "$(cat cluster)" ;;
esac
exit 99
"""


@pytest.mark.parametrize(("others", "spark", "cluster"), [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 1, 1)])
def test_the_exit_code_is_that_of_the_tests(tmp_path: Path, others: int, spark: int, cluster: int) -> None:
    scripts = tmp_path / "scripts"
    python = tmp_path / ".venv" / "bin" / "python"
    scripts.mkdir()
    python.parent.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", scripts)
    (scripts / "setup").write_text("#!/bin/sh\n")
    (scripts / "setup").chmod(0o755)
    python.write_text(PYTHON)
    python.chmod(0o755)
    for name, code in (("others", others), ("spark", spark), ("cluster", cluster)):
        (tmp_path / name).write_text(str(code))
    ran = subprocess.run(["bash", scripts / "test"], cwd=tmp_path, timeout=60, check=False)
    assert (ran.returncode != 0) == bool(others or spark or cluster)
