from __future__ import annotations

import pytest

from quire.wire.bookkeeper.run import Run
from tests.unit.bookie.build import entry, run_of


def test_a_run_is_size_fields_and_entries_end_to_end() -> None:
    run = Run.of(7, [(3, b"abc"), (4, b""), (5, b"de")])
    assert b"".join(run.parts) == b"\0\0\0\3abc" + b"\0\0\0\0" + b"\0\0\0\2de"
    assert (run.first, run.last, run.count, run.size) == (3, 5, 3, 17)
    assert run.offsets == [0, 7, 11]


def test_entries_are_found_by_their_id_without_their_size() -> None:
    run = run_of(7, 10, 20)
    assert [bytes(run.entry(i)) for i in range(10, 30)] == [entry(7, i) for i in range(10, 30)]


def test_a_big_entry_in_two_parts_reads_as_one() -> None:
    run = Run(7, 3, [b"\0\0\0\x0bhead", b"payload"], 15, [0])
    assert bytes(run.entry(3)) == b"headpayload"


def test_entries_in_runs_of_several_parts_are_cut_where_they_lie() -> None:
    whole = run_of(7, 0, 4)
    data = bytes(whole.parts[0])
    for cut in range(1, len(data)):
        run = Run(7, 0, [data[:cut], data[cut:]], len(data), whole.offsets)
        assert [bytes(run.entry(i)) for i in range(4)] == [entry(7, i) for i in range(4)]


def test_a_gap_in_the_ids_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="entry 3 in the place of 2"):
        Run.of(7, [(1, b""), (3, b"")])
