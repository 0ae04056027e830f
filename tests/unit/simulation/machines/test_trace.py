from __future__ import annotations

import trio

from simulation.machines.trace import Trace


async def test_an_event_is_a_line_with_virtual_time_host_name_and_fields():
    trace = Trace(keep=True)
    await trio.sleep(1.5)
    trace.event("bookie-1", "LedgerFenced", ledger=7, key=b"\x01", late=None)
    assert trace.lines == ["1.500000000 bookie-1 LedgerFenced ledger=7 key=01 late=None"]
    assert trace.count == 1


def test_the_digest_depends_on_every_event_and_their_order():
    digests = set()
    for events in ([], [("a", "X")], [("a", "X"), ("a", "Y")], [("a", "Y"), ("a", "X")], [("b", "X"), ("a", "Y")]):
        trace = Trace()
        for host, name in events:
            trace.event(host, name)
        digests.add(trace.digest())
        assert trace.lines == []
    assert len(digests) == 5


def test_the_digest_so_far_does_not_end_the_trace():
    one, other = Trace(), Trace()
    one.event("a", "X")
    one.digest()
    one.event("a", "Y")
    other.event("a", "X")
    other.event("a", "Y")
    assert one.digest() == other.digest()
