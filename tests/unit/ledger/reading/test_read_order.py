from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from quire.ledger.bookies.health import BookieHealth
from quire.ledger.placement import Cluster, PlacementConfig, make_placement
from quire.ledger.read_config import ReadConfig
from quire.ledger.reading.read_order import ReadOrder
from quire.ledger.striping import Striping
from quire.service.measuring.summaries import Times
from quire.wire.bookkeeper.v2 import Rc

BOOKIES = [f"bookie{i}" for i in range(7)]


def order_of(
    cluster: Cluster, health: BookieHealth, size: int, quorum: int, seed: int = 0, config: ReadConfig | None = None
) -> ReadOrder:
    rng = random.Random(seed)
    placement = make_placement(PlacementConfig(policy="random"), lambda: cluster, rng)
    return ReadOrder(Striping(size, quorum), placement, health, config or ReadConfig(), rng, Times())


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, int, set[int], set[int], set[int]]:
    size = draw(st.integers(1, 7))
    quorum = draw(st.integers(1, size))
    indices = st.sets(st.integers(0, size - 1))
    return size, quorum, draw(indices), draw(indices), draw(indices)


@given(situations(), st.integers(0, 100), st.integers(0, 5))
async def test_every_replica_is_asked_once_the_able_ones_first(situation, entry_id, seed):
    size, quorum, failed, read_only, gone = situation
    bookies = BOOKIES[:size]
    health = BookieHealth()
    for index in failed:
        health.refused(bookies[index], Rc.IO)
    cluster = Cluster(
        writable=tuple(each for i, each in enumerate(bookies) if i not in read_only and i not in gone),
        read_only=frozenset(bookies[i] for i in read_only - gone),
    )
    order = order_of(cluster, health, size, quorum, seed)
    found = order.of_entry(bookies, entry_id)

    def kind(index: int) -> int:
        return 3 if index in gone else 2 if index in failed else 1 if index in read_only else 0

    if quorum == 1:
        assert len(found) == 1
    else:
        kinds = [kind(index) for index in found]
        assert kinds == sorted(kinds)
    write_set = Striping(size, quorum).write_set(entry_id)
    assert sorted(found) == (sorted(write_set) if quorum < size else list(range(size)))
    all_of_them = order.of_all(bookies, entry_id)
    assert all_of_them[: len(found)] == found
    assert sorted(all_of_them) == list(range(size))


def first_asked(order: ReadOrder, entry_ids: Sequence[int]) -> list[int]:
    return [order.of_entry(BOOKIES[:3], entry_id)[0] for entry_id in entry_ids]


def test_a_ledger_that_every_bookie_has_is_read_from_one_of_them() -> None:
    cluster = Cluster(writable=tuple(BOOKIES))
    favourites = set()
    for seed in range(30):
        order = order_of(cluster, BookieHealth(), 3, 3, seed)
        [favourite] = set(first_asked(order, range(20)))
        favourites.add(favourite)
        order.prefer((favourite + 1) % 3)
        assert set(first_asked(order, range(20))) == {(favourite + 1) % 3}
    assert favourites == {0, 1, 2}, "each ledger has its own"


def test_without_stickiness_reads_go_around() -> None:
    cluster = Cluster(writable=tuple(BOOKIES))
    order = order_of(cluster, BookieHealth(), 3, 3, config=ReadConfig(sticky=False))
    assert first_asked(order, range(6)) == [0, 1, 2, 0, 1, 2]


async def test_without_reordering_the_write_set_stays_as_it_is() -> None:
    health = BookieHealth()
    health.refused("bookie1", Rc.IO)
    cluster = Cluster(writable=tuple(BOOKIES))
    plain = order_of(cluster, health, 3, 2, config=ReadConfig(reorder=False))
    assert [plain.of_entry(BOOKIES[:3], entry_id) for entry_id in range(3)] == [[0, 1], [1, 2], [2, 0]]
    ordered = order_of(cluster, health, 3, 2)
    assert [ordered.of_entry(BOOKIES[:3], entry_id) for entry_id in range(3)] == [[0, 1], [2, 1], [2, 0]]
