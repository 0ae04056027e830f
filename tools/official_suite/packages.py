"""Packages that the suite imports and this project does not have: in a virtual environment beside .venv."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tools.official_suite.errors import SuiteError

PACKAGES = ("requests==2.34.2", "fastavro==1.13.1")
_STAMP = "quire-stamp"


def installed(folder: Path) -> Path:
    """Return the folder to import them from; make the environment first if it is not there. Raises SuiteError."""
    paths = {"base": str(folder), "platbase": str(folder)}
    modules = Path(sysconfig.get_path("purelib", "venv", paths))
    stamp = folder / _STAMP
    key = f"{sys.version} {folder} {' '.join(PACKAGES)}"
    if stamp.exists() and stamp.read_text() == key:
        return modules
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder)
    # The pip of .venv, which has a version that is known: an environment brings its own, of any age.
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", *PACKAGES]
    if subprocess.run(command, check=False).returncode:
        raise SuiteError(f"{' and '.join(PACKAGES)} cannot be installed into {folder}")
    stamp.write_text(key)
    return modules
