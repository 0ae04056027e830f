"""Checks of what Spark needs in this process. Each returns, or raises an error of one clear line.

Without them the user sees Spark's own words, which hide the cause: a missing pyarrow shows as "Python worker exited
unexpectedly (crashed)", a missing Java as "JAVA_HOME is not set" among a traceback of the gateway.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from quire.distribution import install_command
from quire.spark.errors import MissingDependencyError

PYSPARK_MIN = (4, 2)
"""First version that asks a source for offsets within a limit, and supports `availableNow` for Python sources."""

PYARROW_MIN = (18, 0)
"""pyspark's own minimum."""

NUMPY_MIN = (1, 26)
"""First version for Python 3.12."""

FASTAVRO_MIN = (1, 10)
"""First version with a wheel for Python 3.13."""

JAVA_MIN = 17
"""Spark 4's minimum."""

REMEDY = f"install it with: {install_command('spark')}"

_JAVA_ANSWER_S = 20.0


def require_packages() -> None:
    """Check that what Spark's processes need is installed and new enough. Imports nothing of it.

    Raises MissingDependencyError."""
    require_package("pyspark", PYSPARK_MIN)
    require_package("pyarrow", PYARROW_MIN)
    require_package("numpy", NUMPY_MIN)
    require_package("fastavro", FASTAVRO_MIN)


def require_package(name: str, minimum: tuple[int, ...], remedy: str = REMEDY) -> None:
    """Check that the package `name` can be imported and is at least version `minimum`. Raises
    MissingDependencyError."""
    wanted = ".".join(map(str, minimum))
    if not _is_there(name):
        raise MissingDependencyError(f"quire needs {name} >= {wanted}, which is not installed here; {remedy}")
    found = _version(name)
    if found and parse_version(found) < minimum:
        raise MissingDependencyError(f"quire needs {name} >= {wanted}, but {found} is installed; {remedy}")


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers a version begins with; empty if there are none.

    >>> parse_version("4.2.0.dev1"), parse_version("18"), parse_version("")
    ((4, 2, 0), (18,), ())
    """
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def require_java(environment: Mapping[str, str] | None = None) -> int:
    """Return the major version of the Java that Spark will start: `$JAVA_HOME/bin/java`, else the one on the path.

    Raises MissingDependencyError if there is none, it does not run, or it is older than JAVA_MIN. Source: Spark's
    `spark-class`."""
    given = os.environ if environment is None else environment
    home = given.get("JAVA_HOME", "")
    remedy = f"install Java {JAVA_MIN} or newer, and set JAVA_HOME to its folder"
    path = str(Path(home, "bin", "java")) if home else shutil.which("java", path=given.get("PATH"))
    if path is None:
        raise MissingDependencyError(
            f"Spark needs Java, which was not found (JAVA_HOME is not set, no java on PATH); {remedy}"
        )
    what = f"JAVA_HOME is {home}, but {path}" if home else path
    try:
        answer = subprocess.run(
            [path, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_JAVA_ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingDependencyError(f"Spark needs Java, but {what} does not run ({error}); {remedy}") from None
    text = (answer.stderr + answer.stdout).decode(errors="replace")
    version = java_major(text)
    if version is None:
        raise MissingDependencyError(
            f"Spark needs Java, but {what} prints no version ({text.strip()[:80]!r}); {remedy}"
        )
    if version < JAVA_MIN:
        raise MissingDependencyError(f"Spark needs Java {JAVA_MIN} or newer, but {path} is Java {version}; {remedy}")
    return version


def java_major(text: str) -> int | None:
    """Return the major version in the output of `java -version`; None if there is none.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_402"'), java_major("?")
    (17, 8, None)
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        # an import guard in this process refuses it
        return False


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # a folder on the path, without metadata: use its own version attribute
        return ""
