"""Python with the packages that Spark needs for some of its parts, and that .venv does not have."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL_S = 900


@cache
def python_with_pandas() -> str:
    """Return a Python with pandas and what a client of Spark Connect needs: this one, or that of an environment of its
    own."""
    if importlib.util.find_spec("pandas") is not None and importlib.util.find_spec("grpc_status") is not None:
        return sys.executable
    command = [str(ROOT / "scripts" / "environment"), "connect"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip().splitlines()[-1]
