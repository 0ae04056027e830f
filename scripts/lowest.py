"""Requirements for the lowest versions: packages that pyproject.toml declares at their lower bounds, and test tools.

    python scripts/lowest.py pyproject.toml scripts/lock/dev.txt >lowest.txt

The tools have the versions of the lock. Dependencies of the declared packages are left to pip, which takes the newest
versions that fit.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

TOOLS = ("pytest", "hypothesis", "pulsar-client", "hatchling", "editables", "matplotlib", "py-spy", "py4j")
"""Packages of the lock that tests import. Linters and type checkers are left out."""
LINKED = "pyspark"
"""The package without a wheel: `scripts/environment` links it from .venv. It needs py4j."""


def requirements(pyproject: str, lock: str) -> Iterator[str]:
    """Yield one requirement a line.

    Raises:
        ValueError: a declared package has no lower bound, or a tool is not in the lock.
    """
    project = tomllib.loads(pyproject)["project"]
    declared = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for requirement in dict.fromkeys(declared):
        bound = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
        if bound is None:
            raise ValueError(f"{requirement} has no lower bound of the form NAME>=VERSION")
        if bound[1] != LINKED:
            yield f"{bound[1]}=={bound[2]}"
    for tool in TOOLS:
        locked = re.search(rf"^{re.escape(tool)}==(\S+)", lock, re.MULTILINE)
        if locked is None:
            raise ValueError(f"{tool} is not in the lock")
        yield f"{tool}=={locked[1]}"


if __name__ == "__main__":
    for line in requirements(Path(sys.argv[1]).read_text(), Path(sys.argv[2]).read_text()):
        print(line)
