"""The demo's copy: its topic to another one, each message once, while the driver of Spark is killed once.

The copy is made by `scripts/pipelines/copy-topic`, whose sink writes exactly once. Its driver is killed with SIGKILL
when a task of the second batch has begun to write, and started again with the same checkpoint. Spark repeats the batch.
The copy is read back without any deduplication, and compared with the archive of the same topic, message for message.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2

from quire.spark.trace import read_trace
from tools.demo.files import Line
from tools.demo.messaging import TOPIC
from tools.demo.pipeline import WebServer, ask, hold, kill_group, must_have_ended, run_pipeline, script
from tools.demo.run import Progress
from tools.demo.server import DemoError

NAMESPACE = "public/demo-copies"
"""Namespace with deduplication, which the sink needs."""
COPY = f"persistent://{NAMESPACE}/demo"
HOLD = "demo-copy"
"""Name of the subscriptions: one keeps the topic for the copy, the other keeps the copy."""
BATCHES = 4
"""Number of batches of the copy, roughly."""
KILLS_MAX = 5
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One copy."""

    rows: int
    batch: int
    """Number of the batch that was interrupted, and repeated."""
    rows_per_s: int
    """Rate of the run after the kill, without the start of Spark."""


class Copying(Protocol):
    def hold(self) -> None:
        """Retain messages published from now on, until they are copied."""

    def run(self, messages: int, progress: Progress) -> Copied:
        """Copy the topic, of about so many messages, with a kill on the way."""

    def lines(self) -> Iterable[Line]:
        """Return the lines of the copy, in its order, with repetitions."""


class WriteKill:
    """SIGKILL for a driver once a task of batch `least` or a later one writes, as its trace says."""

    def __init__(self, trace: Path, least: int) -> None:
        self.done = False
        self._trace = trace
        self._least = least
        self._ended = threading.Event()

    @contextmanager
    def beside(self, pid: int) -> Iterator[None]:
        """Watch for the moment to kill the group of the process, while entered."""
        thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _watch(self, pid: int) -> None:
        while not self._ended.wait(POLL_S):
            events = read_trace(str(self._trace))
            if any(each["event"] == "writing" and int(str(each["batch"])) >= self._least for each in events):
                self.done = True
                kill_group(pid)
                return


class SparkCopy:
    """Copy made by `scripts/pipelines/copy-topic`, with its checkpoint in `folder`."""

    def __init__(self, server: WebServer, folder: Path, transport: httpx2.BaseTransport | None = None) -> None:
        self.server = server
        self.folder = folder
        self.checkpoint = folder / "copy-checkpoint"
        self.trace = folder / "copy-trace.jsonl"
        self._transport = transport

    def command(self, messages: int) -> list[str]:
        command = [*script("copy_topic.py", self.server), "--topic", TOPIC, "--subscription", HOLD, "--to", COPY]
        command += ["--checkpoint", str(self.checkpoint), "--set", f"trace={self.trace}"]
        command += ["--max-messages-per-trigger", str(max(1, messages // BATCHES))]
        return [*command, "--master", "local[2,4]", "--conf", f"spark.local.dir={self.folder / 'spark'}"]

    def hold(self) -> None:
        hold(self.server, TOPIC, HOLD, "the copy's subscription", self._transport)

    def run(self, messages: int, progress: Progress) -> Copied:
        """Copy. Raises DemoError: it failed, or no kill came in the middle of a batch."""
        progress.note("copying, with Spark, each message once")
        ask(self.server, "PUT", f"namespaces/{NAMESPACE}", None, "the copy's namespace", self._transport)
        ask(self.server, "POST", f"namespaces/{NAMESPACE}/deduplication", True, "deduplication", self._transport)
        hold(self.server, COPY, HOLD, "the subscription of the copy", self._transport)
        hit = self._kill_in_a_batch(messages, progress)
        code, rate = run_pipeline("copy", self.command(messages), self.folder, progress)
        rows_per_s = must_have_ended("copy", self.folder, code, rate)
        if self._interrupted() is not None:
            raise DemoError(f"the copy ended, and batch {hit} is not committed")
        return Copied(rows=sum(1 for _ in self.lines()), batch=hit, rows_per_s=rows_per_s)

    def _kill_in_a_batch(self, messages: int, progress: Progress) -> int:
        for least in range(1, KILLS_MAX + 1):
            self.trace.unlink(missing_ok=True)  # what a killed driver wrote is not of the next one
            kill = WriteKill(self.trace, least)
            code, rate = run_pipeline("copy", self.command(messages), self.folder, progress, beside=kill.beside)
            if not kill.done:
                must_have_ended("copy", self.folder, code, rate)
                break
            hit = self._interrupted()
            if hit is not None:
                progress.note(f"  killed in the middle of batch {hit}, which is repeated now")
                return hit
            progress.note("  killed at a quiet moment; once more")
        raise DemoError("the copy was never killed in the middle of a batch")

    def _interrupted(self) -> int | None:
        """Return the batch whose offsets are in the checkpoint, and which is not committed; None if there is none."""
        begun, done = (
            {int(name) for name in os.listdir(folder) if name.isdigit()} if folder.is_dir() else set[int]()
            for folder in (self.checkpoint / "offsets", self.checkpoint / "commits")
        )
        return max(begun - done, default=None)

    def lines(self) -> Iterator[Line]:
        import pulsar

        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.folder / "client.log"))
        client = pulsar.Client(self.server.url, logger=logger, operation_timeout_seconds=60)
        try:
            reader = client.create_reader(COPY, pulsar.MessageId.earliest, receiver_queue_size=5000)
            while reader.has_message_available():
                message = reader.read_next(60_000)
                yield Line(message.partition_key(), int(message.properties()["line"]), message.data())
        finally:
            client.close()


def copy_differences(topic: Iterable[Line], copied: Iterable[Line]) -> list[str]:
    """Return the keys whose lines are not the same, in the same order, with the same repetitions; a sentence each.

    >>> copy_differences([Line("a", 1, b"x"), Line("b", 1, b"y")], [Line("a", 1, b"x"), Line("a", 1, b"x")])
    ['a: 0 lines are missing in the copy, 1 too many', 'b: 1 lines are missing in the copy, 0 too many']
    """
    expected, found = _by_key(topic), _by_key(copied)
    told = []
    for key in sorted({*expected, *found}):
        lines, others = expected.get(key, []), found.get(key, [])
        if lines != others:
            missing, more = Counter(lines) - Counter(others), Counter(others) - Counter(lines)
            if missing or more:
                told.append(f"{key}: {missing.total()} lines are missing in the copy, {more.total()} too many")
            else:
                told.append(f"{key}: the lines of the copy are in another order")
    return told


def _by_key(lines: Iterable[Line]) -> dict[str, list[tuple[int, bytes]]]:
    found = defaultdict[str, list[tuple[int, bytes]]](list)
    for line in lines:
        found[line.key].append((line.number, line.payload))
    return found
