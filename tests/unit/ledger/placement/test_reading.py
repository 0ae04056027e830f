from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.placement.policy import Cluster
from quire.ledger.placement.reading import read_order
from tests.unit.ledger.placement.clusters import Health

IDS = ("b0:1", "b1:1", "b2:1", "b3:1", "b4:1")


def all_but(*gone: str, read_only: tuple[str, ...] = ()) -> Cluster:
    return Cluster(
        writable=tuple([each for each in IDS if each not in (*gone, *read_only)]), read_only=frozenset(read_only)
    )


def test_a_write_set_that_is_well_stays_as_it_is() -> None:
    assert read_order(all_but(), IDS, [4, 0, 1], Health()) == [4, 0, 1]


def test_read_only_then_slow_then_unregistered_bookies_come_last() -> None:
    cluster = all_but(IDS[0], read_only=(IDS[2],))
    assert read_order(cluster, IDS, [0, 1, 2, 3, 4], Health(failed={IDS[1]: 5.0})) == [3, 4, 2, 1, 0]


def test_of_those_that_failed_the_one_that_failed_first_is_asked_first() -> None:
    health = Health(failed={IDS[0]: 9.0, IDS[1]: 3.0, IDS[2]: 6.0})
    assert read_order(all_but(), IDS, [0, 1, 2], health) == [1, 2, 0]


def test_a_bookie_with_far_more_to_do_than_the_least_busy_one_is_slow_if_that_is_asked_for() -> None:
    health = Health(pending={IDS[0]: 12, IDS[1]: 11, IDS[2]: 2})
    assert read_order(all_but(), IDS, [0, 1, 2], health, 10) == [1, 2, 0]
    assert read_order(all_but(), IDS, [0, 1, 2], health, 0) == [0, 1, 2]


def test_two_of_the_own_region_are_asked_before_one_of_another() -> None:
    def is_remote(bookie_id: str) -> bool:
        return bookie_id in (IDS[0], IDS[1])

    assert read_order(all_but(), IDS, [0, 1, 2, 3, 4], Health(), 0, is_remote) == [2, 3, 0, 4, 1]
    assert read_order(all_but(IDS[4]), IDS, [0, 1, 2, 3, 4], Health(), 0, is_remote) == [2, 3, 0, 1, 4]
    assert read_order(all_but(read_only=IDS[:2]), IDS, [0, 1, 2, 3, 4], Health(), 0, is_remote) == [2, 3, 4, 0, 1]


@settings(deadline=None)
@given(st.data())
def test_every_bookie_of_the_write_set_is_asked_once(data: st.DataObject) -> None:
    write_set = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True))
    some = st.lists(st.sampled_from(IDS), unique=True)
    cluster = all_but(*data.draw(some), read_only=tuple(data.draw(some)))
    health = Health(dict.fromkeys(data.draw(some), 50), dict.fromkeys(data.draw(some), 1.0))
    remote = data.draw(some)
    order = read_order(cluster, IDS, write_set, health, data.draw(st.integers(0, 9)), lambda each: each in remote)
    assert sorted(order) == sorted(write_set)
