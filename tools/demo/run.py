"""The course of the demo: publish every line, consume every line, and kill the server once in the middle of each.

A kill counts only if it hit in mid-flight: while publishing, something sent must still be unanswered when all receipts
that were under way are in; while consuming, something must have been acknowledged and something not. One that came at
a quiet moment is tried again further on.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from zlib import crc32

from tools.demo.files import Line, Rebuilder, Tree, lines_of
from tools.demo.messaging import Consumer, Messaging, Publisher
from tools.demo.server import DemoError

CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
MESSAGES_MIN = 20
"""Minimum number of lines, so that there is a middle to hit."""
STALL_S = 60.0
"""Time without progress after which the demo fails, in seconds."""
QUIET_S = 0.05
"""Time without receipts after a kill after which none is under way, in seconds."""
WINDOW_MAX = 1000
_TICK_S = 0.1


class KillableServer(Protocol):
    def kill(self) -> None: ...

    def start(self) -> None: ...


class Progress(Protocol):
    """Display of the demo's progress."""

    def begin(self, title: str, total: int) -> None: ...

    def at(self, count: int) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL in mid-flight."""

    phase: str
    done: int
    """Messages answered (or acknowledged) before it."""
    open: int
    """Messages sent and unanswered (or not yet acknowledged)."""
    back_s: float
    """Seconds until the server was ready again."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Outcome of the demo."""

    messages: int
    publish_s: float = 0.0
    consume_s: float = 0.0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    kills: list[Kill] = field(default_factory=list)


class Killer:
    """Killer of the server: once, when a count has reached its mark; then it restarts the server."""

    def __init__(self, phase: str, server: KillableServer, progress: Progress, *, at: int, step: int) -> None:
        self.phase = phase
        self.at = at
        self.kill: Kill | None = None
        self._step = step
        self._server = server
        self._progress = progress
        self._lock = threading.Lock()

    def check(self, done: int, before: Callable[[], int], open_after: Callable[[int], int]) -> None:
        """Kill if `done` has reached the mark.

        `before()` is read right before the kill, and `open_after` derives from it, once the server is dead, how many
        messages were in flight."""
        if self.kill is not None or done < self.at or not self._lock.acquire(blocking=False):
            return
        try:
            if self.kill is not None or done < self.at:
                return
            given = before()
            self._server.kill()
            still_open = open_after(given)
            dead = time.perf_counter()
            self._server.start()
            back_s = time.perf_counter() - dead
            if still_open > 0:
                self.kill = Kill(phase=self.phase, done=done, open=still_open, back_s=back_s)
                self._progress.note(f"killed while {self.phase}: {still_open} open, back after {back_s:.1f} s")
            else:
                self.at += self._step
                self._progress.note(f"killed while {self.phase}, at a quiet moment; once more")
        finally:
            self._lock.release()


class _Threads:
    """Threads that all end at the first failure of one."""

    def __init__(self) -> None:
        self.failed = threading.Event()
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, name: str, job: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                job()
            except BaseException as error:
                self._failures.append(error)
                self.failed.set()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self, count: Callable[[], int], progress: Progress) -> None:
        """Wait until all have ended, reporting the count. Raises DemoError if one failed, or nothing moves."""
        last, moved = -1, time.perf_counter()
        while any(thread.is_alive() for thread in self._threads) and not self.failed.is_set():
            self.failed.wait(_TICK_S)
            now = count()
            progress.at(now)
            if now != last:
                last, moved = now, time.perf_counter()
            elif time.perf_counter() - moved > STALL_S:
                raise DemoError(f"nothing moves any more: still at {now} after {STALL_S:g} s")
        if self._failures:
            error = self._failures[0]
            raise error if isinstance(error, DemoError) else DemoError(f"{type(error).__name__}: {error}") from error
        progress.at(count())


class _Publishing:
    """Counts of sent and answered messages, shared by the sending threads and the client's callbacks."""

    def __init__(self, total: int, latencies_s: array[float]) -> None:
        self.total = total
        self.answered = 0
        self._sent = [0, 0]
        """Counts by sending thread, so that no lock is needed."""
        self._latencies_s = latencies_s
        self._lock = threading.Lock()
        self._stirred = threading.Event()
        self.refused: list[str] = []

    def sent(self) -> int:
        return sum(self._sent)

    def send_all(
        self, index: int, lines: Sequence[Line], publisher: Publisher, threads: _Threads, killer: Killer
    ) -> None:
        for line in lines:
            if threads.failed.is_set():
                return
            publisher.send(line, self._done_at(time.perf_counter()))
            self._sent[index] += 1
            killer.check(self.answered, self.sent, self._open_of)
        while self.answered < self.total and not threads.failed.is_set():
            if self.refused:
                raise DemoError(f"a message was refused: {self.refused[0]}")
            killer.check(self.answered, self.sent, self._open_of)
            self._stirred.wait(0.001)
            self._stirred.clear()
        publisher.close()

    def _done_at(self, begun: float) -> Callable[[str | None], None]:
        def done(error: str | None) -> None:
            with self._lock:
                if error is None:
                    self.answered += 1
                    self._latencies_s.append(time.perf_counter() - begun)
                else:
                    self.refused.append(error)
            self._stirred.set()

        return done

    def _open_of(self, sent: int) -> int:
        """Return how many of `sent` messages have no receipt, once no receipt is under way."""
        while True:
            seen = self.answered
            settled = time.perf_counter() + QUIET_S
            while (left := settled - time.perf_counter()) > 0:
                self._stirred.wait(left)
                self._stirred.clear()
            if self.answered == seen:
                return sent - seen


def window_of(total: int) -> int:
    """Return how many messages each of two publishers may have unanswered, so that a tree of `total` has a middle."""
    return min(WINDOW_MAX, max(1, total // 20))


def is_batched(key: str) -> bool:
    """Return which of the two publishers sends a file: half of them go in batches."""
    return crc32(key.encode()) & 1 == 1


def publish(tree: Tree, messaging: Messaging, server: KillableServer, progress: Progress, outcome: Outcome) -> None:
    """Publish the tree with two producers, one batching by key and one not; kill once when half is answered."""
    parts: tuple[list[Line], list[Line]] = ([], [])
    for key, content in tree.files.items():
        parts[is_batched(key)].extend(lines_of(key, content))
    total = outcome.messages
    messaging.consumer(CONSUMERS[0]).close()  # the subscription retains messages published from now on
    publishing = _Publishing(total, outcome.latencies_s)
    killer = Killer("publishing", server, progress, at=total // 2, step=max(1, total // 20))
    threads = _Threads()
    progress.begin("publishing", total)
    begun = time.perf_counter()
    for index, lines in enumerate(parts):
        batched = index == 1
        publisher = messaging.publisher(
            "demo-batched" if batched else "demo-single", batched=batched, window=window_of(total)
        )
        job = partial(publishing.send_all, index, lines, publisher, threads, killer)
        threads.start(f"publish-{index}", job)
    threads.wait(lambda: publishing.answered, progress)
    outcome.publish_s = time.perf_counter() - begun
    progress.end()
    _must_have_killed(killer, outcome)


def consume(
    rebuilder: Rebuilder, messaging: Messaging, server: KillableServer, progress: Progress, outcome: Outcome
) -> None:
    """Consume everything with three consumers of one Key_Shared subscription; kill once when half is acknowledged."""
    total = outcome.messages
    killer = Killer("consuming", server, progress, at=total // 2, step=max(1, total // 20))
    threads = _Threads()
    lock = threading.Lock()

    def open_after(acknowledged: int) -> int:
        return rebuilder.expected - rebuilder.acknowledged if acknowledged else 0

    def consume_all(consumer: Consumer) -> None:
        while not rebuilder.complete and not threads.failed.is_set():
            received = consumer.receive(200)
            if received is None:
                continue
            key, number, payload = received.line
            with lock:
                rebuilder.deliver(key, number)
            consumer.acknowledge(received)
            with lock:
                rebuilder.acknowledge(key, number, payload)
            killer.check(rebuilder.acknowledged, lambda: rebuilder.acknowledged, open_after)
        consumer.close()

    progress.begin("consuming", total)
    begun = time.perf_counter()
    for name in CONSUMERS:
        threads.start(name, partial(consume_all, messaging.consumer(name)))
    threads.wait(lambda: rebuilder.acknowledged, progress)
    outcome.consume_s = time.perf_counter() - begun
    progress.end()
    _must_have_killed(killer, outcome)


def _must_have_killed(killer: Killer, outcome: Outcome) -> None:
    if killer.kill is None:
        raise DemoError(f"the server was never killed in the middle of {killer.phase}")
    outcome.kills.append(killer.kill)
