from __future__ import annotations

import random

import pytest

from simulation import PowerCut, Universe


def fill(map_, keys: str, *, sync: bool = False) -> None:
    for key in keys:
        batch = map_.batch()
        batch.put(key.encode(), b"v")
        map_.write(batch, sync=sync)


def keys(map_) -> str:
    return "".join(key.decode() for key, _ in map_.scan(b"", b"\xff"))


def test_a_crash_keeps_synced_batches_and_some_prefix_of_the_others():
    """Unsynced batches may vanish in a crash, always as a suffix."""
    seen = set()
    for seed in range(100):
        host = Universe(seed).host("host")
        map_ = host.world().key_value.open("/map")
        fill(map_, "ab")
        fill(map_, "c", sync=True)
        fill(map_, "def")
        assert host.maps.unsynced() == 3
        host.cut_power()
        left = keys(host.world().key_value.open("/map"))
        assert host.crashes[-1].batches == len("abcdef") - len(left)
        seen.add(left)
    assert seen == {"abc", "abcd", "abcde", "abcdef"}


def test_an_empty_synced_batch_covers_those_before_it():
    for seed in range(20):
        host = Universe(seed).host("host")
        map_ = host.world().key_value.open("/map")
        fill(map_, "abc")
        map_.write(map_.batch(), sync=True)
        host.cut_power()
        assert keys(host.world().key_value.open("/map")) == "abc"


def test_a_batch_survives_whole_or_not_at_all():
    for seed in range(50):
        host = Universe(seed).host("host")
        map_ = host.world().key_value.open("/map")
        fill(map_, "abcd", sync=True)
        batch = map_.batch()
        batch.delete_range(b"a", b"c")
        batch.put(b"z", b"v")
        map_.write(batch, sync=False)
        host.cut_power()
        assert keys(host.world().key_value.open("/map")) in ("abcd", "cdz")


def test_closing_makes_nothing_durable_and_a_killed_process_loses_nothing():
    lost = set()
    for seed in range(30):
        host = Universe(seed).host("host")
        map_ = host.world().key_value.open("/map")
        fill(map_, "a")
        map_.close()
        host.cut_power(lose_unsynced=False)
        assert keys(host.world().key_value.open("/map")) == "a"
        host.cut_power()
        lost.add(host.crashes[-1].batches)
    assert lost == {0, 1}


def test_a_dead_host_s_map_does_nothing():
    host = Universe(1).host("host")
    map_ = host.world().key_value.open("/map")
    host.cut_power()
    reads = (lambda: map_.get(b"a"), lambda: map_.scan(b"", b"z"), lambda: map_.values(b"", 1))
    for act in (lambda: fill(map_, "a"), *reads):
        with pytest.raises(PowerCut):
            act()
    map_.close()
    host.world().key_value.open("/map")


def test_a_full_disk_refuses_a_batch_whole():
    host = Universe(1).host("host")
    map_ = host.world().key_value.open("/map")
    host.disk.limit(1)
    with pytest.raises(OSError, match="No space"):
        fill(map_, "a")
    assert keys(map_) == ""


def test_it_agrees_with_a_plain_dict_on_random_changes():
    rng = random.Random(1)
    host = Universe(1).host("host")
    map_ = host.world().key_value.open("/map")
    model: dict[bytes, bytes] = {}
    for _ in range(300):
        batch = map_.batch()
        for _ in range(rng.randint(0, 5)):
            key, other = (bytes(rng.choices(b"abc", k=rng.randint(0, 3))) for _ in range(2))
            match rng.randrange(4):
                case 0:
                    batch.delete(key)
                    model.pop(key, None)
                case 1:
                    batch.delete_range(key, other)
                    model = {k: v for k, v in model.items() if not key <= k < other}
                case _:
                    batch.put(key, other)
                    model[key] = other
        map_.write(batch, sync=rng.random() < 0.3)
        start, stop = (bytes(rng.choices(b"abc", k=rng.randint(0, 3))) for _ in range(2))
        expected = sorted((k, v) for k, v in model.items() if start <= k < stop)
        assert list(map_.scan(start, stop)) == expected
        assert list(map_.scan(start, stop, reverse=True)) == expected[::-1]
        values = [value for key, value in sorted(model.items()) if key >= start]
        assert map_.values(start, 3) == values[:3]
        prefixes = sorted({key[:2] for key, _ in expected})
        assert map_.prefixes(start, stop, 2, 3) == prefixes[:3]
