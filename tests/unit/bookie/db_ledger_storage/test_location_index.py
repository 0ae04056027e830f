from __future__ import annotations

from collections.abc import Iterator
from struct import pack

import pytest

from bookie.db_ledger_storage.entry_log_format import pack_location
from bookie.db_ledger_storage.location_index import ENTRY_ID_MAX, LocationIndex
from bookie.errors import StorageDamagedError
from quire.world.doors import KeyValue
from simulation.machines.world import Universe

FAR = 1 << 40


@pytest.fixture
def rows() -> KeyValue:
    return Universe(1).host("bookie").world().key_value.open("/locations")


@pytest.fixture
def index(rows: KeyValue) -> Iterator[LocationIndex]:
    index = LocationIndex(rows)
    yield index
    index.close()


def at(log_id: int, *positions: int) -> list[int]:
    return [pack_location(log_id, position) for position in positions]


def look_up(index: LocationIndex, dense: bool, *bounds: int, **ahead: int) -> list[int]:
    return index.locations(*bounds, dense=dense, **ahead)


def test_a_row_is_ledger_and_entry_to_log_and_position_behind_the_size_field(rows, index, run_of):
    index.put([(run_of(5_000_000_000, [3, 4]), pack_location(2, 1024))])
    assert list(rows.scan(bytes(16), b"\xff" * 16)) == [
        (pack("!qq", 5_000_000_000, 3), pack("!q", (2 << 32) + 1028)),
        (pack("!qq", 5_000_000_000, 4), pack("!q", (2 << 32) + 1028 + 44)),
    ]
    assert index.get(5_000_000_000, 4) == (2 << 32) + 1072
    assert index.get(5_000_000_000, 5) == 0


both_ways = pytest.mark.parametrize("dense", [False, True])


@both_ways
def test_entries_that_follow_each_other_are_found_up_to_a_hole(index, run_of, dense):
    index.put([(run_of(1, range(300)), pack_location(0, 1024)), (run_of(1, range(301, 310)), pack_location(0, 50_000))])
    found = look_up(index, dense, 1, 0, ENTRY_ID_MAX, 1000, FAR)
    assert found == at(0, *(1028 + 44 * each for each in range(300)))
    assert look_up(index, dense, 1, 290, ENTRY_ID_MAX, 1000, FAR) == found[290:]
    assert look_up(index, dense, 1, 300, ENTRY_ID_MAX, 1000, FAR) == []
    assert len(look_up(index, dense, 1, 301, ENTRY_ID_MAX, 1000, FAR)) == 9
    assert look_up(index, dense, 1, 310, ENTRY_ID_MAX, 1000, FAR) == []


@both_ways
def test_the_bounds_of_a_look_up_are_kept(index, run_of, dense):
    index.put([(run_of(1, range(500)), pack_location(0, 1024)), (run_of(2, range(5)), pack_location(0, 90_000))])
    assert len(look_up(index, dense, 1, 0, ENTRY_ID_MAX, 7, FAR)) == 7
    assert len(look_up(index, dense, 1, 0, 5, 100, FAR)) == 5, "ends before the entry named as stop"
    assert len(look_up(index, dense, 2, 0, ENTRY_ID_MAX, 100, FAR)) == 5, "ends with the ledger"
    assert len(look_up(index, dense, 1, 0, ENTRY_ID_MAX, 500, 44 * 10)) < 200, "ends soon after the span"


@both_ways
def test_a_look_up_for_few_entries_of_many_bytes_ends_when_reading_ahead_has_enough(index, run_of, dense):
    index.put([(run_of(1, range(1000)), pack_location(0, 1024))])
    found = look_up(index, dense, 1, 0, ENTRY_ID_MAX, 101, FAR, ahead_count=1001, ahead_span=44 * 250)
    assert 250 < len(found) < 260, "neither 1001 entries nor FAR bytes are wanted together"
    assert len(look_up(index, dense, 1, 0, ENTRY_ID_MAX, 400, FAR, ahead_count=1001, ahead_span=44 * 250)) == 400


@both_ways
def test_what_lies_behind_a_gap_is_not_taken_for_what_is_missing(index, run_of, dense):
    behind = pack_location(0, 1024 + 41 * 44)
    index.put([(run_of(1, range(40)), pack_location(0, 1024)), (run_of(1, range(41, 400)), behind)])
    index.put([(run_of(2, range(400)), pack_location(0, 50_000))])
    for first in (0, 1, 39):
        found = at(0, *(1028 + 44 * each for each in range(first, 40)))
        assert look_up(index, dense, 1, first, ENTRY_ID_MAX, 200, FAR) == found
    assert len(look_up(index, dense, 1, 390, ENTRY_ID_MAX, 200, FAR)) == 10, "ends with the ledger"
    assert len(look_up(index, dense, 2, 390, ENTRY_ID_MAX + 1, 200, FAR)) == 10, "ends with the map"


def test_rows_of_a_ledger_without_gaps_are_read_without_their_keys(rows, index, run_of, monkeypatch):
    index.put([(run_of(1, range(1000)), pack_location(0, 1024))])
    monkeypatch.setattr(rows, "scan", None)
    assert look_up(index, True, 1, 0, ENTRY_ID_MAX, 900, FAR) == at(0, *(1028 + 44 * each for each in range(900)))
    assert len(look_up(index, True, 1, 900, 1000, 900, FAR)) == 100, "up to the entry named as stop"


def test_the_last_entry_of_each_ledger_is_found(index, run_of):
    index.put([(run_of(1, range(5)), 1024), (run_of(2, [9]), 5000), (run_of(3, [0]), 6000)])
    assert [index.last_entry_id(each) for each in (0, 1, 2, 3, 4)] == [-1, 4, 9, 0, -1]


def test_ledgers_with_rows_and_logs_in_use_are_told(index, run_of):
    index.put([(run_of(1, range(5)), pack_location(3, 1024)), (run_of(1 << 40, [9]), pack_location(300, 1024))])
    assert index.ledgers() == [1, 1 << 40]
    assert index.logs_in_use([2, 3, 4, 300]) == {3, 300}
    assert index.logs_in_use([]) == set()


def test_a_deleted_ledger_leaves_no_row_and_takes_no_other(index, run_of):
    index.put([(run_of(each, range(3)), 1024 + each * 1000) for each in range(4)])
    index.delete_ledgers([1, 2])
    assert index.ledgers() == [0, 3]
    assert index.last_entry_id(1) == -1
    assert index.get(0, 2) > 0
    assert index.get(3, 0) > 0


@both_ways
def test_a_value_of_another_length_is_damage(rows, index, dense):
    batch = rows.batch()
    batch.put(pack("!qq", 1, 0), b"short")
    rows.write(batch, sync=True)
    with pytest.raises(StorageDamagedError):
        look_up(index, dense, 1, 0, ENTRY_ID_MAX, 1, FAR)


def test_many_rows_go_in_batches_and_are_durable_on_return(run_of):
    host = Universe(1).host("bookie")
    index = LocationIndex(host.world().key_value.open("/locations"))
    index.put([(run_of(1, range(first, first + 700)), pack_location(0, first)) for first in range(1024, 5000, 700)])
    assert host.maps.unsynced() == 0
    host.cut_power()
    again = LocationIndex(host.world().key_value.open("/locations"))
    assert len(again.locations(1, 1024, ENTRY_ID_MAX, 10_000, FAR)) == 6 * 700


def test_rows_of_ledgers_that_follow_each_other_are_deleted_as_one_range(rows, index, run_of, monkeypatch):
    index.put([(run_of(each, range(3)), 1024 + 200 * each) for each in range(1, 9)])
    deleted: list[tuple[int, int]] = []
    make = rows.batch

    def counted():
        batch = make()
        delete = batch.delete_range

        def noted(start: bytes, stop: bytes) -> None:
            deleted.append((int.from_bytes(start[:8], "big"), int.from_bytes(stop[:8], "big")))
            delete(start, stop)

        batch.delete_range = noted
        return batch

    monkeypatch.setattr(rows, "batch", counted)
    index.delete_ledgers([7, 2, 4, 3])
    assert deleted == [(2, 4), (7, 7)]
    assert index.ledgers() == [1, 5, 6, 8]
