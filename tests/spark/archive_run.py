"""scripts/pipelines/archive as a process that can be watched, frozen at a chosen point, and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quire.spark.pipelines.manifest import read_manifest
from tests.spark.processes import Process, of_session, signal_all, states
from tests.spark.support import wait_for

ARCHIVE = Path(__file__).parents[2] / "scripts" / "pipelines" / "archive.py"
POLL_S = 0.001
"""Seconds between two looks at a driver that reads; one that only starts is looked at less often."""
STARTING_POLL_S = 0.05
HIT_S = 300.0
"""Seconds after which a point counts as never reached; starts of Spark and of servers on a busy machine are in them."""
GONE_S = 20.0


class TraceTail:
    """Follows the trace of one run: the reads that have begun and are not complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[dict[str, Any]] = []
        self.begun = False
        """True once anything was read."""
        self._offset = 0
        self._open: dict[str, int] = {}

    def poll(self) -> None:
        """Take in what was written since."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for line in data[:whole].splitlines():
            event = json.loads(line)
            self.events.append(event)
            key = json.dumps([event["pid"], event.get("partition"), event.get("ranges"), event.get("batch")])
            if event["event"] == "read":
                self.begun = True
                self._open[key] = event["batch"]
            elif event["event"] == "read-done":
                self._open.pop(key, None)

    def reader(self, batch: int) -> tuple[int, str]:
        """Return the worker of a read of a batch that is not complete, and what it reads."""
        key = next(key for key, of in self._open.items() if of == batch)
        pid, *what, _ = json.loads(key)
        return pid, json.dumps(what)

    def readers(self, batch: int, what: str) -> set[int]:
        """Return the workers that have begun to read a part of a batch."""
        return {
            each["pid"]
            for each in self.events
            if each["event"] == "read"
            and each["batch"] == batch
            and json.dumps([each.get("partition"), each.get("ranges")]) == what
        }

    def reading(self) -> set[int]:
        """Return the batches of which a read has begun and is not complete."""
        return set(self._open.values())


class ArchiveRun:
    """One archive, one driver process at a time."""

    hit_s = HIT_S

    def __init__(self, folder: Path, arguments: Mapping[str, str], settings: Mapping[str, str] | None = None) -> None:
        """`settings`: options of the source that have no argument of their own."""
        self.folder = folder
        self._settings = [f"--set={name}={text}" for name, text in (settings or {}).items()]
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"
        self.runs = 0
        self.tail = TraceTail(folder / "none")
        self._arguments = dict(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def subscription(self) -> str:
        """Return the name of the hold, which the archive chooses."""
        return f"archive-{self.out.name}"

    @property
    def session(self) -> int:
        assert self._process is not None, "the driver was never started"
        return self._process.pid

    def start(self) -> None:
        self.runs += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tail = TraceTail(self.folder / f"trace-{self.runs}.jsonl")
        command = [sys.executable, str(ARCHIVE), "--out", str(self.out), "--checkpoint", str(self.checkpoint)]
        command += [f"--set=trace={self.tail.path}", *self._settings, "--master", "local[2,4]"]
        command += ["--conf", f"spark.local.dir={self.folder / 'local'}"]
        # (a short life: the time that a better compiler takes does not come back)
        command += ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
        for name, value in self._arguments.items():
            command += [f"--{name}", value]
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def log_path(self) -> Path:
        return self.folder / "driver.log"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # What is on the disk

    def has(self, kind: str, batch: int) -> bool:
        """Return whether the checkpoint has `offsets/N` or `commits/N`."""
        return (self.checkpoint / kind / str(batch)).is_file()

    def last(self, kind: str) -> int:
        """Return the highest batch of that kind in the checkpoint; -1 for none."""
        folder = self.checkpoint / kind
        names = os.listdir(folder) if folder.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def end_of(self, batch: int) -> dict[str, tuple[int, int]]:
        """Return the next entry of each partition behind a batch, from Spark's checkpoint."""
        text = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return {name: (place[0], place[1]) for name, place in json.loads(text)["p"].items()}

    def recorded(self) -> dict[int, int]:
        """Return the number of rows of each batch in the manifest."""
        return {record.batch: record.rows for record in read_manifest(self.out).batches}

    def rows(self) -> int:
        return sum(self.recorded().values())

    # Points

    def in_mid_task(self, least: int) -> int | None:
        """Return a batch at K2: `least` or later, its offsets are logged, a task reads it, and it is not committed."""
        self.tail.poll()
        for batch in self.tail.reading():
            if batch >= least and self.has("offsets", batch) and not self.has("commits", batch):
                return None if batch in self.recorded() else batch
        return None

    def between_commits(self, least: int) -> int | None:
        """Return a batch at K4: `least` or later, it is in the manifest, and Spark has not committed it."""
        batch = self.last("offsets")
        if batch < least or self.has("commits", batch) or batch not in self.recorded():
            return None
        return batch

    def freeze_at(self, point: Callable[[int], int | None], least: int) -> int:
        """Watch until the driver is at `point` of a batch, `least` or later, and freeze all its processes.

        If it has passed the point in the meantime, it continues until the next batch. Return the batch, with all
        processes frozen.
        """
        deadline = time.monotonic() + self.hit_s
        while True:
            assert time.monotonic() < deadline, (
                f"{point.__name__} was not met within {self.hit_s:g} s:\n{self.log()[-4000:]}"
            )
            self.must_run()
            if not self.tail.begun:
                self.tail.poll()
                time.sleep(STARTING_POLL_S)
                continue
            if point(least) is None:
                time.sleep(POLL_S)
                continue
            pids = self._stop_all()
            batch = point(least)
            if batch is not None:
                return batch
            signal_all(pids, signal.SIGCONT)

    def thaw(self) -> None:
        signal_all([process.pid for process in of_session(self.session)], signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL to the driver's process group: the driver, its JVM and the process that plans.

        The workers are in a group of their own, and must end by themselves.
        """
        assert self._process is not None, "the driver was never started"
        os.killpg(self.session, signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL, "the driver had ended by itself"
        self.thaw()

    def kill_one(self, pid: int) -> None:
        """Send SIGKILL to one of the driver's processes."""
        assert pid in {process.pid for process in of_session(self.session)}, f"{pid} is no process of the driver"
        os.kill(pid, signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM to the driver alone; return its exit code."""
        assert self._process is not None, "the driver was never started"
        self._process.terminate()
        return self._process.wait(60)

    def left(self) -> list[Process]:
        """Return the remaining processes of a driver that has ended, after some time to notice."""
        deadline = time.monotonic() + GONE_S
        while (found := of_session(self.session)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def abandon(self) -> None:
        """Kill every process that is left of the run."""
        if self._process is not None:
            signal_all([process.pid for process in of_session(self.session)], signal.SIGKILL)
            self._process.kill()
            self._process.wait()

    def must_run(self) -> None:
        assert self._process is not None, "the driver was never started"
        assert self._process.poll() is None, f"the driver ended by itself:\n{self.log()[-4000:]}"

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float | None = None) -> None:
        """Wait until it is true; fail at once if the driver ends."""

        def met() -> object:
            self.must_run()
            return condition()

        wait_for(met, what, self.hit_s if seconds is None else seconds)

    def _stop_all(self) -> list[int]:
        """Stop every process of the driver; new ones that a running one still made are found in the next round."""
        while True:
            pids = [process.pid for process in of_session(self.session)]
            signal_all(pids, signal.SIGSTOP)
            if states(pids) <= {"T"} and {process.pid for process in of_session(self.session)} <= set(pids):
                return pids
