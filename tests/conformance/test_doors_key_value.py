"""The contract of `quire.world.doors.KeyValue`, held by both makers. Quotes are from its docstrings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quire.world.doors import KeyValue, KeyValueMaker
from quire.world.real import real_world
from simulation import Universe
from tests.support.refusals import refuses


@pytest.fixture(params=["real", "simulated"])
def door(request, tmp_path) -> tuple[KeyValueMaker, str]:
    """Return a maker of maps, and a folder that does not exist yet."""
    if request.param == "real":
        return real_world().key_value, str(tmp_path / "a" / "map")
    return Universe(1).host("host").world().key_value, "/a/map"


@pytest.fixture
def map_(door) -> Iterator[KeyValue]:
    maker, path = door
    opened = maker.open(path)
    yield opened
    opened.close()


def write(map_: KeyValue, *, sync: bool = False, **pairs: str) -> None:
    batch = map_.batch()
    for key, value in pairs.items():
        batch.put(key.encode(), value.encode())
    map_.write(batch, sync=sync)


def keys(map_: KeyValue, start: bytes = b"", stop: bytes = b"\xff", **options: bool) -> str:
    return "".join(key.decode() for key, _ in map_.scan(start, stop, **options))


def test_a_missing_map_is_made_only_with_create(door):
    maker, path = door
    refuses(FileNotFoundError, lambda: maker.open(path, create=False))
    maker.open(path).close()
    maker.open(path, create=False).close()


def test_a_map_is_open_once(door):
    maker, path = door
    first = maker.open(path)
    refuses(BlockingIOError, lambda: maker.open(path))
    first.close()
    maker.open(path).close()


def test_get_answers_the_last_value_or_none(map_):
    assert map_.get(b"a") is None
    write(map_, a="1")
    write(map_, a="2", b="")
    assert (map_.get(b"a"), map_.get(b"b"), map_.get(b"")) == (b"2", b"", None)


@pytest.mark.parametrize("sync", [False, True])
def test_what_was_written_is_there_after_close_and_open(door, sync):
    maker, path = door
    first = maker.open(path)
    write(first, sync=sync, a="1", b="2")
    first.close()
    again = maker.open(path)
    assert list(again.scan(b"", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    again.close()


def test_a_batch_is_applied_in_the_order_of_its_changes(map_):
    """ "Changes that are applied together or not at all." """
    write(map_, a="1", b="1", c="1", d="1")
    batch = map_.batch()
    batch.delete_range(b"a", b"c")
    batch.put(b"b", b"2")
    batch.delete(b"d")
    batch.delete(b"never there")
    map_.write(batch, sync=True)
    assert list(map_.scan(b"", b"z")) == [(b"b", b"2"), (b"c", b"1")]


def test_an_empty_synced_batch_is_fine(map_):
    """ "With `sync` it and every batch before it are durable on return." """
    write(map_, a="1")
    map_.write(map_.batch(), sync=True)
    assert map_.get(b"a") == b"1"


def test_delete_range_includes_its_start_and_not_its_stop(map_):
    """ "Delete start <= key < stop." """
    write(map_, a="", b="", c="", d="")
    batch = map_.batch()
    batch.delete_range(b"b", b"d")
    batch.delete_range(b"a", b"a")
    map_.write(batch, sync=False)
    assert keys(map_) == "ad"


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (b"", b"z", "abcd"),
        (b"a", b"d", "abc"),
        (b"b", b"c", "b"),
        (b"aa", b"cc", "bc"),
        (b"c", b"c", ""),
        (b"d", b"a", ""),
        (b"e", b"z", ""),
        (b"", b"a", ""),
    ],
)
def test_scan_gives_start_to_stop_in_order_and_in_reverse(map_, start, stop, expected):
    """ "Yield pairs with start <= key < stop in order (or in reverse order)." """
    write(map_, c="", a="", d="", b="")
    assert keys(map_, start, stop) == expected
    assert keys(map_, start, stop, reverse=True) == expected[::-1]


def test_keys_are_ordered_as_unsigned_bytes_and_a_prefix_comes_first(map_):
    """ "An ordered map of bytes in a folder." """
    written = [b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xfe\xff", b"\xff"]
    batch = map_.batch()
    for key in reversed(written):
        batch.put(key, key * 2)
    map_.write(batch, sync=False)
    assert [key for key, _ in map_.scan(b"", b"\xff\xff")] == written
    assert all(map_.get(key) == key * 2 for key in written)


def test_a_scan_longer_than_any_buffer_is_whole(map_):
    batch = map_.batch()
    for number in range(5000):
        batch.put(number.to_bytes(8, "big"), b"v")
    map_.write(batch, sync=False)
    found = [int.from_bytes(key, "big") for key, _ in map_.scan(b"", b"\xff")]
    assert found == list(range(5000))
    back = [int.from_bytes(key, "big") for key, _ in map_.scan((7).to_bytes(8, "big"), b"\xff", reverse=True)]
    assert back == list(range(4999, 6, -1))


def test_writes_during_a_scan_do_not_break_it(map_):
    """ "A snapshot is not promised." """
    write(map_, a="", b="", c="", d="")
    scan = map_.scan(b"a", b"z")
    assert next(scan)[0] == b"a"
    batch = map_.batch()
    batch.delete(b"c")
    map_.write(batch, sync=False)
    rest = [key for key, _ in scan]
    assert rest in ([b"b", b"d"], [b"b", b"c", b"d"])


def test_a_scan_left_in_the_middle_does_not_keep_the_map_open(door):
    maker, path = door
    first = maker.open(path)
    write(first, a="", b="")
    scan = first.scan(b"", b"z")
    next(scan)
    first.close()
    maker.open(path).close()


def test_compact_changes_nothing_that_can_be_read(map_):
    """ "Reclaim the space of deleted ranges." """
    write(map_, a="1", b="2")
    batch = map_.batch()
    batch.delete_range(b"a", b"b")
    map_.write(batch, sync=False)
    map_.compact()
    assert list(map_.scan(b"", b"z")) == [(b"b", b"2")]


def test_a_closed_map_refuses(door):
    maker, path = door
    map_ = maker.open(path)
    map_.close()
    for act in (lambda: map_.get(b"a"), lambda: list(map_.scan(b"", b"z")), map_.compact):
        with pytest.raises(OSError, match="closed"):
            act()
