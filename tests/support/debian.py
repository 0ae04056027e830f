"""Programs of Debian packages that tests start, installed by scripts/debian-packages if the machine lacks them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHIN_S = 600
"""Seconds for an installation; one that another process began is waited for."""


def installed(package: str, program: str) -> str:
    """Return the path of a package's program, as in `installed("prometheus", "promtool")`.

    Raises AssertionError with the remedy that scripts/debian-packages names, if it cannot be installed here.
    """
    found = subprocess.run(
        [ROOT / "scripts/debian-packages", package], stderr=subprocess.PIPE, text=True, timeout=WITHIN_S, check=False
    )
    assert found.returncode == 0, found.stderr
    path = shutil.which(program)
    assert path, f"{package} is installed, and {program} is not on PATH"
    return path
