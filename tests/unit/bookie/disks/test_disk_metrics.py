"""Tests of bookie/disks/metrics.py: the gauges are those of the disks as last measured."""

from __future__ import annotations

import pytest

from bookie.disks.metrics import register_disks
from bookie.disks.watch import DiskWatch
from quire.service.metrics import Metrics
from quire.world.doors import World
from tests.unit.bookie.build import CONFIG


def gauges(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.exposition().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_free_bytes_and_size_of_each_folder_are_those_last_measured(world: World) -> None:
    metrics, disks = Metrics(), DiskWatch(world, CONFIG)
    register_disks(metrics, disks)
    assert gauges(metrics) == {"quire_disk_full": 0, "quire_bookie_flushes_fail": 0}, "nothing was measured yet"
    disks.make_room()
    assert disks.sizes.keys() == {"ledgers", "journal"}
    assert gauges(metrics) == {
        "quire_disk_full": 0,
        "quire_bookie_flushes_fail": 0,
        **{f'quire_disk_free_bytes{{folder="{folder}"}}': free for folder, (free, _) in disks.sizes.items()},
        **{f'quire_disk_size_bytes{{folder="{folder}"}}': size for folder, (_, size) in disks.sizes.items()},
    }


async def test_free_bytes_shrink_with_what_is_written_and_the_size_stays(world: World) -> None:
    metrics, disks = Metrics(), DiskWatch(world, CONFIG)
    register_disks(metrics, disks)
    disks.make_room()
    before = gauges(metrics)
    world.disk.make_dirs("/data")
    file = world.disk.open("/data/ballast", create=True)
    file.preallocate(0, 100_000)
    file.close()
    disks.make_room()
    after = gauges(metrics)
    for folder in ("ledgers", "journal"):
        free, size = (f'quire_disk_{name}_bytes{{folder="{folder}"}}' for name in ("free", "size"))
        assert before[free] - after[free] >= 100_000
        assert before[size] == after[size] >= before[free] > 0


@pytest.mark.expect_error("no room")
async def test_the_disk_is_full_while_adds_are_refused_for_lack_of_room(world: World) -> None:
    metrics, disks = Metrics(), DiskWatch(world, CONFIG)
    register_disks(metrics, disks)
    disks.make_room()
    disks.failed("no space")
    assert gauges(metrics)["quire_disk_full"] == 1
