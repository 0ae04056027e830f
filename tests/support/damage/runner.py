"""A process for each server, forked from one that has imported everything, so that a start does not pay for imports.

`python -m tests.support.damage.runner` is the process that forks. It reads jobs, one JSON value per line, and answers
each with one line.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from tests.support.damage import alone, standalone
from tests.support.damage.judging import diagnosed
from tests.support.damage.places import Case, Damage, Place, Stop, cases_of, inflict
from tests.support.damage.verdicts import Outcome, Verdict
from tests.support.forking import load

LIMIT_S: Final = 60
SHAPES: Final = {"standalone": standalone, "bookie": alone}
CHECKOUT: Final = Path(__file__).parents[3]


class Runner:
    """A process that forks; its jobs run one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.damage.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
            text=True,
        )

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S + 10)
        self._process.stdout.close()


def prepare(folder: Path, shapes: Iterable[str] = SHAPES, stops: Iterable[Stop] = Stop) -> None:
    """Make the folders of each shape and stop below `folder`: `<shape>/<stop>/data` and the acknowledged data."""
    runner = Runner()
    try:
        for shape in shapes:
            for stop in stops:
                root = folder / shape / stop.name
                root.mkdir(parents=True)
                answer = runner.ask({"do": "prepare", "shape": shape, "stop": stop.name, "root": str(root)})
                assert answer == {"prepared": True}, answer
    finally:
        runner.close()


def all_cases(folder: Path) -> list[Case]:
    """Return every case for the folders that `prepare` made."""
    return [
        case
        for shape in sorted(path.name for path in folder.iterdir() if path.name in SHAPES)
        for stop in Stop
        for case in cases_of(shape, stop, folder / shape / stop.name / "data")
    ]


def run_cases(folder: Path, cases: list[Case], at_once: int = 2) -> Iterator[tuple[Case, Outcome]]:
    """Yield the outcome of each case, in order."""
    runners: SimpleQueue[Runner] = SimpleQueue()
    for _ in range(at_once):
        runners.put(Runner())

    def one(case: Case) -> tuple[Case, Outcome]:
        runner = runners.get()
        try:
            place = case.place
            answer = runner.ask(
                {
                    "do": "case",
                    "shape": case.shape,
                    "stop": case.stop.name,
                    "root": str(folder / case.shape / case.stop.name),
                    "place": [place.kind, place.index, place.path, place.extent],
                    "damage": case.damage.name,
                    "turn": case.turn,
                }
            )
        finally:
            runners.put(runner)
        return case, Outcome(Verdict[answer["verdict"]], answer["detail"], answer["done"])

    try:
        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(one, cases)
    finally:
        for _ in range(at_once):
            runners.get().close()


# --- the process


def _forked(job: Callable[[], dict[str, Any]], log_path: Path) -> dict[str, Any]:
    """Return the result of `job`, run in a process of its own whose output goes to a file; it may kill itself after
    sending it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        fd = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        faulthandler.dump_traceback_later(LIMIT_S - 1, file=sys.stderr)
        try:
            os.write(writer, json.dumps(job()).encode())
        except BaseException as error:
            import traceback

            traceback.print_exception(error)
            os.write(writer, json.dumps({"failed": repr(error)[:2000]}).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    chunks: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while select.select([reader], [], [], max(0, deadline - time.monotonic()))[0] and (chunk := os.read(reader, 65536)):
        chunks.append(chunk)
    os.close(reader)
    os.kill(pid, signal.SIGKILL)  # it is not reaped yet: the id is its own
    _, status = os.waitpid(pid, 0)
    if not chunks:
        return {"failed": f"ended without a word (status {status}): {log_path.read_text()[-2000:]}"}
    answer: dict[str, Any] = json.loads(b"".join(chunks))
    return answer


def _prepare(job: dict[str, Any]) -> dict[str, Any]:
    """Run incarnations one after the other; each writes the acknowledged data into a file."""
    root, stop = Path(job["root"]), Stop[job["stop"]]
    shape = SHAPES[job["shape"]]
    known = root / "acknowledged.json"
    for number in range(shape.incarnations(stop)):
        before = json.loads(known.read_text()) if known.exists() else {}
        answer = _forked(partial(shape.live, root / "data", stop, number, before), root / "log")
        if "failed" in answer:
            return answer
        known.write_text(json.dumps(answer))
    return {"prepared": True}


def _case(job: dict[str, Any]) -> dict[str, Any]:
    root, shape = Path(job["root"]), SHAPES[job["shape"]]
    case = Case(job["shape"], Stop[job["stop"]], Place(*job["place"]), Damage[job["damage"]], job["turn"])
    copy = root / f"copy-{os.getpid()}"
    shutil.copytree(root / "data", copy / "data")
    try:
        done = inflict(case, copy / "data")
        acknowledged = json.loads((root / "acknowledged.json").read_text())
        log_path = copy / "log"

        def look_at() -> dict[str, Any]:
            damaged = [str(finding) for finding in shape.examine(copy / "data", case.stop)]
            return diagnosed(shape.look(copy / "data", log_path, acknowledged, case), damaged)

        answer = _forked(look_at, log_path)
        if "failed" in answer:
            answer = {"verdict": Verdict.CRASHED.name, "detail": answer["failed"]}
        return {**answer, "done": done}
    finally:
        shutil.rmtree(copy)


def main() -> None:
    load()
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps({"prepare": _prepare, "case": _case}[job["do"]](job)), flush=True)


if __name__ == "__main__":
    main()
