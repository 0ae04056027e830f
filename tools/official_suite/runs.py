"""Run the files of the suite with pytest, one process for each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.official_suite.events import Events
from tools.official_suite.plugin import VARIABLE
from tools.official_suite.verdict import Outcome, Result

STALL_S = 120.0
"""Time without an event after which the process is killed. The longest test takes half a minute."""
_POLL_S = 0.1
_ROOT = Path(__file__).resolve().parents[2]
_NO_TESTS = 5
"""Exit code of pytest if there is nothing left to run."""


def files(checkout: Path) -> list[Path]:
    return sorted((checkout / "tests").glob("*_test.py"))


def run_file(file: Path, modules: Path, folder: Path, *, stall_s: float = STALL_S) -> dict[str, Result]:
    """Run all tests of a file, and return their results. What pytest prints is in `folder`. A test that does not end
    is killed with its process, and the others are run in another one."""
    events = Events()
    output = folder / f"{file.stem}.log"
    while True:
        written = folder / f"{file.stem}.events"
        written.unlink(missing_ok=True)
        written.touch()
        with open(output, "ab") as log:
            process = subprocess.Popen(
                _command(file, folder, list(events.results)),
                cwd=file.parent,
                env=os.environ | {VARIABLE: str(written), "PYTHONPATH": f"{modules}{os.pathsep}{_ROOT}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            ended = _follow(process, written, events, stall_s)
        finally:
            _kill(process)
        if ended is None:
            resumable = events.running is not None
            events.stalled(file.name, f"no event within {stall_s:g} s, see {output}")
            if resumable:
                continue
        elif events.running is not None:
            events.died(file.name, f"the process ended with {ended}, see {output}")
            continue
        elif ended not in (0, 1, _NO_TESTS):
            events.died(file.name, f"pytest ended with {ended}, see {output}")
        return events.results


def _command(file: Path, folder: Path, without: Sequence[str]) -> list[str]:
    """Return the command line. The empty configuration keeps the options of a surrounding project away."""
    empty = folder / "pytest.ini"
    empty.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", str(empty), "--rootdir", str(file.parent)]
    command += ["-p", "no:cacheprovider", "-p", "tools.official_suite.plugin", "-q", "--tb=short", file.name]
    return [*command, *(f"--deselect={test}" for test in without)]


def _follow(process: subprocess.Popen[bytes], written: Path, events: Events, stall_s: float) -> int | None:
    """Take the events of the process until it ends; return its exit code. None: it stalled."""
    last = time.monotonic()
    with written.open(encoding="utf-8") as lines:
        rest = ""
        while True:
            code = process.poll()
            rest += lines.read()
            *whole, rest = rest.split("\n")
            if whole:
                last = time.monotonic()
                events.take(whole)
            if code is not None:
                return code
            if time.monotonic() - last > stall_s:
                return None
            time.sleep(_POLL_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def count(results: dict[str, Result]) -> str:
    """Return the numbers of the outcomes, for a line of progress."""
    numbers = {outcome: sum(each.outcome is outcome for each in results.values()) for outcome in Outcome}
    return ", ".join(f"{number} {outcome.value}" for outcome, number in numbers.items() if number)
