"""quire/spark/sink/routing.py"""

from __future__ import annotations

from collections import Counter

import pytest

from quire.client.routing import partition_of
from quire.spark.errors import SinkError
from quire.spark.sink.columns import Rows
from quire.spark.sink.routing import Router

T = "persistent://public/default/t"


def routed(router: Router, rows: Rows, **partitions: int) -> dict[str, list[int]]:
    topics = router.topics(rows)
    for topic in router.unknown(topics):
        router.tell(topic, partitions.get(topic.rpartition("/")[2], 0))
    return {target: list(indexes) for target, indexes in router.route(rows, topics).items()}


def values(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def test_a_topic_without_partitions_gets_all_rows_in_order():
    assert routed(Router("t", "JavaStringHash"), Rows(values(3))) == {T: [0, 1, 2]}


def test_no_rows_go_nowhere():
    assert routed(Router("t", "JavaStringHash"), Rows([])) == {}
    assert routed(Router(None, "JavaStringHash"), Rows([], topics=[])) == {}


@pytest.mark.parametrize("scheme", ["JavaStringHash", "Murmur3_32Hash", "BoostHash"])
def test_a_key_goes_where_the_official_clients_route_it_and_keeps_its_order(scheme):
    keys: list[bytes | None] = [b"k%d" % (number % 7) for number in range(100)]
    found = routed(Router("t", scheme), Rows(values(100), keys=keys), t=4)
    assert sorted(number for indexes in found.values() for number in indexes) == list(range(100))
    for target, indexes in found.items():
        assert indexes == sorted(indexes)
        for number in indexes:
            key = keys[number]
            assert key is not None
            assert target == f"{T}-partition-{partition_of(key, 4, scheme)}"


def test_rows_without_a_key_go_to_each_partition_in_turn_and_go_on_there_with_the_next_batch():
    router = Router("t", "JavaStringHash", first=2)
    first = routed(router, Rows(values(4)), t=3)
    assert first == {f"{T}-partition-2": [0, 3], f"{T}-partition-0": [1], f"{T}-partition-1": [2]}
    assert routed(router, Rows(values(1)), t=3) == {f"{T}-partition-0": [0]}
    mixed = routed(router, Rows(values(2), keys=[None, None]), t=3)
    assert mixed == {f"{T}-partition-1": [0], f"{T}-partition-2": [1]}
    assert routed(router, Rows(values(1), keys=[None]), t=3) == {f"{T}-partition-0": [0]}


def test_the_partition_column_wins_over_the_key_where_it_is_not_null():
    rows = Rows(values(3), keys=[b"a", b"a", None], partitions=[3, None, 1])
    found = routed(Router("t", "JavaStringHash"), rows, t=4)
    expected = Counter({f"{T}-partition-3": 1, f"{T}-partition-1": 1})
    expected[f"{T}-partition-{partition_of(b'a', 4)}"] += 1
    assert Counter({target: len(indexes) for target, indexes in found.items()}) == expected
    assert 0 in found[f"{T}-partition-3"]
    assert 2 in found[f"{T}-partition-1"]


@pytest.mark.parametrize("partition", [4, -1])
def test_a_partition_that_is_not_there_is_refused_by_column_and_value(partition: int):
    with pytest.raises(SinkError, match=rf"column __partition is {partition} in row 1 .*has 4 partitions \(0 to 3\)"):
        routed(Router("t", "JavaStringHash"), Rows(values(2), partitions=[0, partition]), t=4)


def test_a_partition_of_a_topic_without_partitions_is_refused():
    rows = Rows(values(2), partitions=[None, 0])
    with pytest.raises(SinkError, match=f"column __partition is 0 in row 1 .*{T} is not partitioned"):
        routed(Router("t", "JavaStringHash"), rows)
    assert routed(Router("t", "JavaStringHash"), Rows(values(2), partitions=[None, None])) == {T: [0, 1]}


def test_each_row_goes_to_its_topic_whichever_way_it_is_spelt():
    rows = Rows(values(4), topics=["t", "public/default/u", T, "u"])
    found = routed(Router(None, "JavaStringHash"), rows)
    assert found == {T: [0, 2], "persistent://public/default/u": [1, 3]}


def test_a_topic_is_asked_for_once_per_task():
    router = Router(None, "JavaStringHash")
    topics = router.topics(Rows(values(2), topics=["t", "u"]))
    assert len(router.unknown(topics)) == 2
    for topic in topics:
        router.tell(topic, 1)
    assert router.unknown(router.topics(Rows(values(2), topics=["u", "t"]))) == []
    assert router.count == 2


def test_a_row_without_a_topic_is_refused_by_column_and_value():
    with pytest.raises(SinkError, match=r"column __topic is null in row 1 of its batch \(value b'1'\)"):
        Router(None, "JavaStringHash").topics(Rows(values(2), topics=["t", None]))


@pytest.mark.parametrize("name", ["", "a/b", "http://a/b/c", "non-persistent://a/b/c"])
def test_a_name_that_is_no_topic_is_refused(name: str):
    with pytest.raises(SinkError, match="column __topic is"):
        Router(None, "JavaStringHash").topics(Rows(values(1), topics=[name]))
    with pytest.raises(SinkError, match="option topic is"):
        Router(name, "JavaStringHash")


def test_a_key_that_is_no_text_is_routed_too():
    assert len(routed(Router("t", "JavaStringHash"), Rows(values(1), keys=[b"\xff\xfe"]), t=8)) == 1
