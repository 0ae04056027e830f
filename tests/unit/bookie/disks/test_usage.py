"""Tests of bookie/disks/usage.py and the thresholds of bookie/disks/config.py."""

from __future__ import annotations

from typing import Any

import pytest

from bookie.config import BookieConfig
from bookie.disks.usage import DiskUsage, Space


def used(fraction: float, device: int = 1, total: int = 1000) -> tuple[Space, ...]:
    return (Space(round(total * (1 - fraction)), total, device),)


def usage(count: int = 1, low_water_mark: float = 0.8) -> DiskUsage:
    return DiskUsage(count, threshold=0.95, warn_threshold=0.9, low_water_mark=low_water_mark)


def test_a_directory_is_full_above_the_threshold_and_not_at_it() -> None:
    disks = usage()
    disks.measured([used(0.95)])
    assert (disks.full, disks.why_full(0)) == ([False], "")
    disks.measured([used(0.951)])
    assert disks.full == [True]
    assert disks.why_full(0) == "95.1 % are used, above diskUsageThreshold=0.95"


def test_a_single_full_directory_is_writable_again_only_below_the_low_water_mark() -> None:
    disks = usage()
    disks.measured([used(0.96)])
    for fraction in (0.9, 0.8):
        disks.measured([used(fraction)])
        assert disks.full == [True], fraction
    assert "below 80 %" in disks.why_full(0)
    disks.measured([used(0.799)])
    assert disks.full == [False]


def test_without_a_low_water_mark_of_its_own_the_threshold_counts() -> None:
    disks = usage(low_water_mark=0.95)
    disks.measured([used(0.96)])
    disks.measured([used(0.949)])
    assert disks.full == [False]


def test_a_full_directory_beside_a_writable_one_needs_only_the_threshold() -> None:
    disks = usage(2)
    disks.measured([used(0.96), used(0.5, 2)])
    assert disks.full == [True, False]
    disks.measured([used(0.94), used(0.5, 2)])
    assert disks.full == [False, False]


def test_when_all_are_full_those_below_the_threshold_come_back_once_all_together_are_below_the_mark() -> None:
    disks = usage(2)
    disks.measured([used(0.96), used(0.97, 2)])
    disks.measured([used(0.7), used(0.97, 2)])
    assert disks.full == [True, True], "together they are above the low-water mark"
    disks.measured([used(0.5), used(0.97, 2)])
    assert disks.full == [False, True]


def test_a_file_system_that_directories_share_counts_once() -> None:
    disks = usage(3)
    disks.measured([used(0.96), used(0.96), used(0.96, 2, total=3000)])
    # One of 1000 bytes at 0.7 and one of 3000 bytes at 0.84: together 0.805. Counted twice, the first would give 0.777.
    disks.measured([used(0.7), used(0.7), used(0.84, 2, total=3000)])
    assert disks.full == [True, True, True]


def test_the_fuller_of_entry_logs_and_indexes_counts() -> None:
    disks = usage()
    disks.measured([used(0.1) + used(0.96, 2)])
    assert disks.full == [True]


def test_the_warning_comes_before_the_threshold() -> None:
    disks = usage()
    disks.measured([used(0.9)])
    assert not disks.almost_full(0)
    disks.measured([used(0.91)])
    assert disks.almost_full(0)
    assert disks.full == [False]


def test_a_bookie_that_was_read_only_begins_full() -> None:
    disks = usage()
    disks.measured([used(0.9)])
    disks.fill()
    assert "90.0 % are used; entries are accepted below 80 %" in disks.why_full(0)
    disks.measured([used(0.9)])
    assert disks.full == [True]
    disks.measured([used(0.7)])
    assert disks.full == [False]


def test_a_file_system_without_a_size_is_full() -> None:
    assert Space(0, 0, 1).used == 1


def test_thresholds_that_are_not_given_follow_the_one_that_is() -> None:
    config = BookieConfig(disk_usage_threshold=0.8)
    assert (config.warn_threshold, config.low_water_mark) == (0.8, 0.8)
    config = BookieConfig(disk_usage_threshold=0.99, disk_usage_warn_threshold=0.98, disk_usage_low_water_mark=0.7)
    assert (config.warn_threshold, config.low_water_mark) == (0.98, 0.7)
    assert (BookieConfig().warn_threshold, BookieConfig().low_water_mark) == (0.9, 0.95)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"disk_usage_threshold": 0.0}, "diskUsageThreshold=0.0: it must be above 0 and below 1"),
        ({"disk_usage_threshold": 1.0}, "diskUsageThreshold=1.0: it must be above 0 and below 1"),
        ({"disk_usage_warn_threshold": 0.96}, "diskUsageWarnThreshold=0.96 is above diskUsageThreshold=0.95"),
        ({"disk_usage_low_water_mark": 0.96}, "diskUsageLwmThreshold=0.96 is above diskUsageThreshold=0.95"),
    ],
)
def test_thresholds_that_contradict_each_other_are_refused(keys: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        BookieConfig(**keys)
