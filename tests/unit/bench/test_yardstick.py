"""The yardstick: its verdicts on a machine of the same speed, and on a slower one."""

from __future__ import annotations

import pytest

from bench.yardstick import LIMITS_SET_AT_US, factor, measure, sentence


@pytest.mark.parametrize("slower", [0.5, 1.0, 1.7])
def test_a_machine_that_is_slower_in_everything_is_so_by_that_much(slower):
    assert factor({name: figure * slower for name, figure in LIMITS_SET_AT_US.items()}) == slower


def test_one_primitive_that_is_slower_weighs_as_one_of_them():
    figures = dict(LIMITS_SET_AT_US)
    figures["crc32c of 64 KB"] *= 32
    assert factor(figures) == pytest.approx(2.0)


def test_every_primitive_is_measured_here():
    measured = measure()
    assert measured.keys() == LIMITS_SET_AT_US.keys()
    assert 0 < factor(measured) < 1000
    assert sentence(1.5, 1.25).startswith("yardstick: 1.50x before, 1.25x after")
