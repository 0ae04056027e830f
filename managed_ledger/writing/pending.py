"""Appends that are not confirmed yet, in order. Pure.

    sent     given to the current ledger, oldest first; the ledger keeps their payloads
    queued   wait for the next ledger; their payloads are copies of our own

What holds: NoOutOfOrderEntries: entries are confirmed in the order of `append`; a run goes back from `sent` to `queued`
only whole, in front of what is queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from quire.world.doors import Buffer

COPY_MAX = 16 * 1024
"""Payload size up to which entries lie in a receive buffer that is reused after the pass, so a queued run is copied."""


class AppendSink(Protocol):
    """Receiver of the outcome of an append. The methods must not raise."""

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Note that the next `count` entries of the append are stored. Called several times if a ledger filled up
        meanwhile."""

    def failed(self, error: Exception) -> None:
        """Note that the unconfirmed rest will not be stored; once per append. Takes a ManagedLedgerError."""


class PendingAppend:
    """A run of entries of one append; `payloads` only while it is queued."""

    __slots__ = ("count", "first", "is_end", "payloads", "sink", "size")

    def __init__(self, sink: AppendSink, payloads: Sequence[Buffer], *, is_end: bool = True) -> None:
        self.sink = sink
        self.payloads: Sequence[Buffer] | None = payloads
        self.count = len(payloads)
        self.first = -1
        """Entry id of its first entry, once sent."""
        self.is_end = is_end
        """False: the rest of the same append follows directly."""
        self.size = 0
        """Bytes of payload, while queued."""

    def take(self, count: int) -> PendingAppend:
        """Cut off the first `count` entries of a queued run; this one keeps the rest."""
        assert self.payloads is not None, "what was sent is not cut"
        assert 0 < count < self.count, f"cannot take {count} of {self.count}"
        head = PendingAppend(self.sink, self.payloads[:count], is_end=False)
        self.payloads = self.payloads[count:]
        self.count -= count
        return head


class PendingAppends:
    """The two queues."""

    __slots__ = ("_queued", "queued_bytes", "sent")

    def __init__(self) -> None:
        self.sent: list[PendingAppend] = []
        self._queued: deque[PendingAppend] | None = None
        """None if there are none: a deque takes 760 bytes, and nearly all logs have nothing queued."""
        self.queued_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.sent or self._queued)

    @property
    def queued(self) -> Sequence[PendingAppend]:
        """Return the runs that wait for the next ledger, in order."""
        return self._queued or ()

    def enqueue(self, run: PendingAppend, *, in_front: bool = False) -> None:
        """Queue a run for the next ledger. Copies payloads in a receive buffer."""
        assert run.payloads is not None, "a run that waits has payloads"
        run.payloads = [
            bytes(payload) if len(payload) <= COPY_MAX and not isinstance(payload, bytes) else payload
            for payload in run.payloads
        ]
        run.first = -1
        run.size = sum(map(len, run.payloads))
        self.queued_bytes += run.size
        queued = self._queued
        if queued is None:
            queued = self._queued = deque()
        if in_front:
            queued.appendleft(run)
        else:
            queued.append(run)

    def dequeue(self) -> PendingAppend:
        assert self._queued, "a run waits"
        run = self._queued.popleft()
        if not self._queued:
            self._queued = None
        self.queued_bytes -= run.size
        run.size = 0
        return run

    def confirm_through(self, last: int) -> list[tuple[AppendSink, int, int]]:
        """Take out entries up to and including `last` of the current ledger; return the sinks to notify, as (sink,
        first, count)."""
        told: list[tuple[AppendSink, int, int]] = []
        done = 0
        for run in self.sent:
            first = run.first
            count = run.count
            if first + count - 1 <= last:
                done += 1
            elif first <= last:
                count = last - first + 1
                run.first = last + 1
                run.count -= count
            else:
                break
            told.append((run.sink, first, count))
        del self.sent[:done]
        return told

    def take_all(self) -> list[AppendSink]:
        """Drop everything; return the sinks to notify, one per append."""
        sinks = [run.sink for run in (*self.sent, *self.queued) if run.is_end]
        self.sent.clear()
        self._queued = None
        self.queued_bytes = 0
        return sinks


NO_PENDING: Final = PendingAppends()
"""Queues of logs that nothing was appended to, shared and never filled."""
