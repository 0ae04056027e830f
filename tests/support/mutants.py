"""Planted bugs: one change of the source text each, and the test that must fail with it.

    [exclusive-for-two]
    bug = "two consumers of an Exclusive subscription are accepted"
    within = "broker/dispatch"           # a file or a folder: the text may move from one file to another in it
    old = '''...'''                      # found there exactly once, else the mutant is stale
    new = '''...'''
    test = "tests/conformance/pulsar/test_official_client.py::test_a_second_exclusive_consumer_is_refused"

A mutant is planted in a copy of the repository, in which the test is run: servers that it starts are of the copy.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "autorecovery",
    "bench",
    "bookie",
    "broker",
    "conf",
    "cursors",
    "managed_ledger",
    "pyproject.toml",
    "pyspark_quire",
    "quire",
    "simulation",
    "tests",
    "tools",
)
TEST_S = 240.0
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest."""


class StaleMutantError(Exception):
    """The mutant does not fit the source text any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug."""

    name: str
    bug: str
    within: str
    old: str
    new: str
    test: str

    def place(self, root: Path) -> tuple[Path, str]:
        """Return the file, and its text with the bug in it. Raises StaleMutantError."""
        where = root / self.within
        files = sorted(where.rglob("*.py")) if where.is_dir() else [where]
        found = [(file, text) for file in files if file.exists() and self.old in (text := file.read_text())]
        count = sum(text.count(self.old) for _, text in found)
        if count != 1:
            raise StaleMutantError(f"{self.name}: its text is in {self.within} {count} times, not once:\n{self.old}")
        file, text = found[0]
        return file, text.replace(self.old, self.new)


def read(folder: Path) -> list[Mutant]:
    """Return the mutants of all TOML files in the folder, by file and in their order."""
    return [
        Mutant(name=name, **values)
        for file in sorted(folder.glob("*.toml"))
        for name, values in tomllib.loads(file.read_text()).items()
    ]


def copy_of(root: Path, folder: Path) -> Path:
    """Copy the repository, bytecode too, into the folder, and return the copy."""
    made = folder / "copy"
    made.mkdir()
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, made / name)
        else:
            shutil.copy2(source, made / name)
    return made


@contextmanager
def planted(mutant: Mutant, root: Path) -> Iterator[None]:
    """Have the bug in the copy. Raises StaleMutantError."""
    file, text = mutant.place(root)
    before, times = file.read_text(), file.stat()
    compile(text, str(file), "exec")
    try:
        file.write_text(text)
        _forget_bytecode(file)
        yield
    finally:
        file.write_text(before)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        _forget_bytecode(file)


def _forget_bytecode(file: Path) -> None:
    """Remove what was compiled: bytecode is taken for current if time and size of the text are the same."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()


@dataclass(frozen=True, slots=True)
class Run:
    """End of one run of pytest: its exit code (None: it did not end in time), and what it printed."""

    code: int | None
    output: str

    def passed(self) -> bool:
        return self.code == _PASSED

    def failed(self, test: str) -> bool:
        """Return whether the test itself failed: not its fixtures, nor the import of its file."""
        return self.code == _FAILED and any(
            line.startswith((f"FAILED {test}", f"FAILED {test}[")) for line in self.output.splitlines()
        )


def run(root: Path, *tests: str, seconds: float = TEST_S) -> Run:
    """Run tests in the copy."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "-rfE", *tests],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return Run(None, output)
    return Run(process.returncode, output)
