from __future__ import annotations

import itertools

from managed_ledger.writing.pending import COPY_MAX, PendingAppend, PendingAppends
from tests.unit.managed_ledger.fake_ledgers import Sink


def sent(pending: PendingAppends, *counts: int) -> list[Sink]:
    sinks = []
    first = 0
    for count in counts:
        sinks.append(Sink())
        run = PendingAppend(sinks[-1], [b"x"] * count)
        run.first = first
        first += count
        pending.sent.append(run)
    return sinks


def test_confirmations_go_to_sinks_in_order_however_they_are_cut() -> None:
    for cuts in itertools.product((False, True), repeat=8):
        pending = PendingAppends()
        sinks = sent(pending, 3, 1, 5)
        told: list[tuple[int, int, int]] = []
        for last in [*(place for place, cut in enumerate(cuts) if cut), 8]:
            for sink, first, count in pending.confirm_through(last):
                told.append(([one is sink for one in sinks].index(True), first, count))
        assert [(who, first + n) for who, first, count in told for n in range(count)] == [
            (who, entry) for entry, who in enumerate((0, 0, 0, 1, 2, 2, 2, 2, 2))
        ]
        assert not pending


def test_what_waits_is_a_copy_unless_it_is_big() -> None:
    pending = PendingAppends()
    buffer = bytearray(b"small") + bytearray(COPY_MAX + 1)
    view = memoryview(buffer)
    pending.enqueue(PendingAppend(Sink(), [view[:5], view[5:]]))
    buffer[:5] = b"XXXXX"
    run = pending.dequeue()
    assert run.payloads is not None
    assert run.payloads[0] == b"small"
    assert run.payloads[1] is not buffer
    assert isinstance(run.payloads[1], memoryview)


def test_queued_bytes_are_counted() -> None:
    pending = PendingAppends()
    pending.enqueue(PendingAppend(Sink(), [b"abc", b"de"]))
    pending.enqueue(PendingAppend(Sink(), [b"f"]), in_front=True)
    assert pending.queued_bytes == 6
    assert pending.dequeue().payloads == [b"f"]
    assert pending.queued_bytes == 5
    pending.take_all()
    assert pending.queued_bytes == 0


def test_a_failed_append_is_told_once_though_it_was_cut() -> None:
    pending = PendingAppends()
    sink = Sink()
    run = PendingAppend(sink, [b"a", b"b", b"c"])
    head = run.take(1)
    head.first = 0
    pending.sent.append(head)
    pending.enqueue(run)
    assert (head.count, run.count) == (1, 2)
    assert pending.take_all() == [sink]
