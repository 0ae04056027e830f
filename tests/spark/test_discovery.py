"""Discovery of the source by Spark, and its errors where something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import quire.spark


def look_up(session: Any) -> None:
    """Let Spark find the source and call it: Quire's source refuses the given options by name."""
    with pytest.raises(PySparkException, match=r"toppic.*did you mean.*topic"):
        session.read.format("quire").option("toppic", "t").load().count()


def test_the_format_is_found_without_registering_anything(spark):
    look_up(spark)
    look_up(spark.newSession())


def test_the_format_can_be_registered_over_what_was_found(spark):
    session = spark.newSession()
    quire.spark.register(session)
    look_up(session)


WITHOUT_PYARROW = """
import os, sys
from pathlib import Path
from tests.spark.session import make_session
session = make_session(Path(sys.argv[1]), "local[1]")
try:
    session.read.format("quire").schema("value BINARY").option("topic", "t").load().count()
except Exception as error:
    print("TOLD", str(error).replace(chr(10), " | "))
finally:
    session.stop()
"""

HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.full
def test_a_missing_pyarrow_is_told_by_name_and_not_as_a_crash(tmp_path: Path):
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDING)
    checkout = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": f"{hiding}{os.pathsep}{checkout}"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYARROW, str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert told, done.stdout + done.stderr
    assert (
        "quire needs pyarrow >= 18.0, which is not installed here; install it with: pip install 'quire-broker[spark]'"
        in told[0]
    )
    assert "crashed" not in told[0]
